"""``holdfast completion``."""

from __future__ import annotations

import click
from click.shell_completion import BashComplete, FishComplete, ZshComplete

from holdfast.cli.options import Common, common_options
from holdfast.cli.output import answer

_KINDS = {"bash": BashComplete, "zsh": ZshComplete, "fish": FishComplete}
_VARIABLE = "_HOLDFAST_COMPLETE"


@click.command("completion", short_help="Print the completion script for a shell.")
@click.argument("shell", type=click.Choice(tuple(_KINDS)))
@common_options
@click.pass_context
def command(ctx: click.Context, common: Common, shell: str) -> None:
    """Print the completion script for a shell.

    \b
    Examples:
      holdfast completion bash > ~/.local/share/bash-completion/completions/holdfast
      holdfast completion zsh > "${fpath[1]}/_holdfast"
      holdfast completion fish > ~/.config/fish/completions/holdfast.fish
    """
    script = _KINDS[shell](ctx.find_root().command, {}, "holdfast", _VARIABLE).source()
    if common.json:
        answer({"completion": {"shell": shell, "script": script}})
        return
    click.echo(script)
