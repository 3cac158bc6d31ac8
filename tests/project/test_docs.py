"""Links and commands in the README and the docs are true."""

import re
import shlex
from functools import partial
from importlib import import_module

import pytest
from scripts import ROOT, load_script, words_of

import medqn_tianshou
from medqn_tianshou.commands.figures import forgetting, sine
from medqn_tianshou.commands.flags import make_train_parser
from medqn_tianshou.commands.main import ROOT as COMMANDS
from medqn_tianshou.commands.main import find
from medqn_tianshou.commands.reproduce import make_parser as make_figures_parser
from medqn_tianshou.experiments.families import FAMILIES
from medqn_tianshou.experiments.figures import load_figures
from medqn_tianshou.experiments.settings import load_settings

PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").glob("**/*.md")])
SCRIPTS = ("atari", "minatar", "lowdim")
PARSERS = {
    **{f"{name}/{name}_medqn.py": partial(make_train_parser, name) for name in SCRIPTS},
    "lowdim/sine.py": sine.make_parser,
    "lowdim/forgetting.py": forgetting.make_parser,
    "lowdim/lowdim_figures.py": lambda: make_figures_parser(load_figures("lowdim")),
    "minatar/minatar_figures.py": lambda: make_figures_parser(load_figures("minatar")),
}
COMMAND = re.compile(
    r"\b(?:python (?!-)\S+\.py|python -m benchmarks\S*|(?<![-/])medqn [a-z]+)(?:[^`\n)#]*)"
)
FLAG = re.compile(r"(?<![\w-])--[a-z][a-z-]*[a-z]")
# Of docker and tensorboard.
FOREIGN_FLAGS = {
    "--build-arg", "--env", "--gpus", "--ipc", "--logdir", "--memory", "--rm", "--shm-size",
    "--time", "--volume",
}  # fmt: skip


def anchors(text):
    headings = re.findall(r"^#+ (.*)", text, re.MULTILINE)
    plain = [re.sub(r"[^\w -]", "", heading).strip().lower() for heading in headings]
    return {heading.replace(" ", "-") for heading in plain}


def broken_links(page, text):
    """List the relative links of a page that lead nowhere."""
    broken = []
    for link in re.findall(r"\]\(([^)\s]+)\)", text):
        target, _, anchor = link.partition("#")
        if re.match(r"[a-z]+:", link):
            continue
        path = page.parent / target if target else page
        if not path.exists() or (anchor and anchor not in anchors(path.read_text())):
            broken.append(link)
    return broken


def commands(text):
    """List the commands in a page's code, without comments and prose."""
    code = re.findall(r"```sh\n(.*?)```", text, re.DOTALL) + re.findall(r"^    (.*)", text, re.M)
    code += re.findall(r"(?<!`)`([^`]+)`(?!`)", text)
    lines = [line for block in code for line in block.replace("\\\n", " ").splitlines()]
    lines = [re.sub(r"(^|\s)#.*", "", line) for line in lines]
    lines = [re.sub(r"^docker run .* medqn(?= )", "medqn", line) for line in lines]
    return [found[0].strip() for line in lines for found in [COMMAND.search(line)] if found]


def check(command):
    """Parse a command with its real parser, which exits where it does not fit."""
    first, *words = shlex.split(command)
    if first == "medqn":
        medqn_command, prog, rest = find(words)
        assert prog != "medqn", f"{command}: no such command"
        if medqn_command.module is None or len(prog.split()) > len(words):
            assert rest == list(medqn_command.first_arguments), command  # the name alone
        else:
            medqn_command.make_parser(prog).parse_args(rest)
        return
    if words[0] == "-m":
        module = words[1] if words[1].count(".") > 1 else f"{words[1]}.command"
        import_module(module).make_parser().parse_args(words[2:])
        return
    script, *flags = words
    assert (ROOT / script).is_file(), command
    module = None if script in PARSERS else load_script(script)
    make_parser = PARSERS.get(script) or getattr(module, "make_parser", None)
    if make_parser is not None:
        make_parser().parse_args(flags)
    else:
        source = (ROOT / script).read_text()
        assert all(f'"{flag}"' in source for flag in flags if flag.startswith("--")), command


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere_and_commands_parse(page):
    text = page.read_text()
    assert broken_links(page, text) == []
    for command in commands(text):
        check(command)


def test_the_pages_have_commands_of_every_kind():
    found = {" ".join(c.split()[:2]) for page in PAGES for c in commands(page.read_text())}
    assert {f"medqn {name}" for name in ("doctor", "train", "evaluate", "play", "sweep")} <= found
    assert PARSERS.keys() <= {command.removeprefix("python ") for command in found}


@pytest.mark.parametrize(
    "text",
    [
        "`medqn sing`",
        "`medqn train lowdim --lamda 3`",
        "```sh\nmedqn reproduce fig9\n```",
        "    python atari/atari_medqn.py --no-such-flag",
        "`python lowdim/none.py`",
        "`python -m benchmarks.speed --slow`",
        "`python -m benchmarks.none`",
        "```sh\ndocker run --rm medqn train chess --logdir /runs\n```",
    ],
)
def test_a_wrong_command_is_found(text, capsys):
    (command,) = commands(text)
    with pytest.raises((SystemExit, AssertionError, ImportError)):
        check(command)


def test_a_wrong_link_is_found():
    page = ROOT / "README.md"
    assert broken_links(page, "[a](none.md) [b](docs/atari.md#none)") == [
        "none.md",
        "docs/atari.md#none",
    ]
    assert broken_links(page, "[a](docs/atari.md#files-of-a-run) [b](https://example.org)") == []


def test_the_page_of_flags_is_that_of_the_command_lines():
    assert (ROOT / "docs/flags.md").read_text() == load_script("docs/flags.py").page(), (
        "run: python docs/flags.py"
    )


def test_every_flag_is_documented_and_every_documented_flag_exists():
    told = {flag for page in PAGES for flag in FLAG.findall(page.read_text())}
    for family in FAMILIES:
        actions = make_train_parser(family)._actions
        flags = {flag for action in actions for flag in action.option_strings}
        assert {flag for flag in flags if flag.startswith("--")} - told == set()
    known = {
        flag for make in PARSERS.values() for a in make()._actions for flag in a.option_strings
    }
    known |= {word for words in words_of(COMMANDS).values() for word in words}
    scripts = [*(ROOT / "benchmarks").glob("**/*.py"), *(ROOT / "docs").glob("**/*.py")]
    known |= {flag for path in scripts for flag in FLAG.findall(path.read_text())}
    # The changelog names flags that are gone.
    changes = set(FLAG.findall((ROOT / "CHANGELOG.md").read_text()))
    elsewhere = {f for p in PAGES if p.name != "CHANGELOG.md" for f in FLAG.findall(p.read_text())}
    assert told - known - FOREIGN_FLAGS - (changes - elsewhere) == set()


def test_the_table_of_methods_is_that_of_the_measurements():
    page = (ROOT / "README.md").read_text()
    assert load_script("docs/which.py").table() in page, "run: python docs/which.py"


def test_the_api_reference_has_every_public_name():
    page = (ROOT / "docs/api.md").read_text()
    listed = re.findall(r"^::: medqn_tianshou\.(\w+)$", page, re.MULTILINE)
    assert len(listed) == len(set(listed))
    assert set(listed) == set(medqn_tianshou.__all__) - {"__version__"}


def test_the_tasks_of_medqn_u_have_the_settings_that_the_page_tells():
    rows = re.findall(
        r"^\| (MinAtar )?([\w ]+) \| (\d+) \| (\d+) \| (\d+) \|$",
        (ROOT / "docs/medqn_u.md").read_text(),
        re.MULTILINE,
    )
    known = {
        task.split("-")[0].replace("_", " ").lower(): (family, task)
        for family in ("lowdim", "minatar")
        for task in load_settings(family)["task"]
    }
    assert known.keys() - {"freeway"} == {name.lower() for _, name, *_ in rows}
    for _, name, *told in rows:
        family, task = known[name.lower()]
        settings = FAMILIES[family].settings(task, algo="medqn-u")
        names = ("step_per_collect", "consolidation_epochs", "lambda_end")
        assert [getattr(settings, key) for key in names] == [float(value) for value in told]
