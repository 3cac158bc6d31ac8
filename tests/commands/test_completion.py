"""The completion script is generated once, and again for another version of the package."""

from medqn_tianshou.commands import completion
from medqn_tianshou.commands.parsing import Parser


def test_the_script_is_cached_until_the_package_changes(tmp_path, monkeypatch, capsys):
    built = []

    def small_tree(command):
        built.append(command)
        return Parser(prog="medqn")

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(completion, "parser_tree", small_tree)

    def script():
        assert completion.main(["bash"], "medqn completion") == 0
        return capsys.readouterr().out

    first = script()
    assert "medqn" in first
    assert script() == first
    assert len(built) == 1
    monkeypatch.setattr(completion, "__version__", "99")
    assert script() == first
    assert len(built) == 2
    assert len(list(tmp_path.rglob("*.bash"))) == 1  # the old one is gone


def test_a_cache_that_cannot_be_written_is_no_error(tmp_path, monkeypatch, capsys):
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    monkeypatch.setattr(completion, "parser_tree", lambda command: Parser(prog="medqn"))
    assert completion.main(["zsh"], "medqn completion") == 0
    assert "medqn" in capsys.readouterr().out
