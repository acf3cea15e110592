"""``holdfast init``."""

from __future__ import annotations

import click

from holdfast.cli.options import Common, common_options
from holdfast.cli.output import answer, one_line, path_text, print_line
from holdfast.sessions.project import prepare_project

_DATABASE = {
    "created": "created",
    "prepared": "its tables are up to date now",
    "present": "was there already",
}
_GITIGNORE = {
    "added": "added .agents/",
    "present": ".agents/ was ignored already",
    "not_added": "left as it is",
}


@click.command("init", short_help="Prepare a project: create its database.")
@click.option(
    "--gitignore/--no-gitignore",
    default=None,
    help="Add .agents/ to .gitignore; done by default in a git repository.",
)
@click.option(
    "--trust", is_flag=True, help="The store that the project's settings name is yours: use it."
)
@common_options
def command(common: Common, gitignore: bool | None, trust: bool) -> None:
    """Prepare a project: create its database.

    Makes .agents/sessions.db at the top of the project, for your eyes only, and keeps it out of git.
    Doing it again changes nothing. With --url, the tables are created in that store instead.

    A store elsewhere that only .agents/holdfast.toml names is not used by any command, hook or program
    until you have said --trust once: whoever wrote the file would get all that is saved here.

    \b
    Examples:
      holdfast init
      holdfast init --no-gitignore
      holdfast init --url postgresql://localhost/agents
      holdfast init --trust
    """
    report = prepare_project(
        common.project_dir, url=common.url, tenant=common.tenant, gitignore=gitignore, trust=trust
    )
    if common.json:
        project = {
            "project_dir": path_text(report.project_dir),
            "url": report.url,
            "database": report.database,
            "gitignore": report.gitignore,
        }
        answer({"project": project})
        return
    print_line(("Database    ", "bold"), f"{one_line(report.url)}: {_DATABASE[report.database]}")
    print_line(("Git ignore  ", "bold"), _GITIGNORE[report.gitignore])
    if report.database == "created":
        print_line("Next: ", ("holdfast demo", "cyan"), ", or save these files as they are:")
        print_line(("  holdfast save first --agent-type me", "cyan"))
