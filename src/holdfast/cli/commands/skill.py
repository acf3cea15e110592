"""``holdfast skill install``."""

from __future__ import annotations

import click

from holdfast.cli.options import Common, common_options
from holdfast.cli.output import answer, one_line, path_text, plural, print_line
from holdfast.manager.skill import install_skill


@click.command("skill", short_help="Install the skill for coding agents.")
@click.argument("action", type=click.Choice(["install"]))
@click.option(
    "--dir",
    "directory",
    metavar="DIR",
    type=click.Path(file_okay=False),
    help="Where to; .claude/skills/checkpoint-manager of the project by default.",
)
@click.option("--force", is_flag=True, help="Replace files that were edited, too.")
@common_options
def command(common: Common, action: str, directory: str | None, force: bool) -> None:
    """Install the skill for coding agents.

    A folder with instructions and scripts from which an agent learns to save the project before risky
    changes and to roll back. Doing it again changes nothing, a newer version replaces the older one,
    and what you edited stays as it is.

    \b
    Examples:
      holdfast skill install
      holdfast skill install --dir ~/.claude/skills/checkpoint-manager
    """
    report = install_skill(directory, project_dir=common.project_dir, force=force)
    kept = [name for name, done in report.files.items() if done == "kept"]
    if common.json:
        files = [{"path": name, "status": done} for name, done in report.files.items()]
        answer({"skill": {"directory": path_text(report.directory), "files": files}})
        return
    written = sum(done in ("created", "updated") for done in report.files.values())
    where = one_line(path_text(report.directory))
    print_line(("Skill  ", "bold"), f"{where}: {plural(written, 'file')} written")
    for name in kept:
        print_line(("kept   ", "yellow"), f"{name} was edited; --force replaces it")
