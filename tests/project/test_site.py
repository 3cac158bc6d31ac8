"""The documentation site builds without a warning, and has all that the pages promise."""

import json
import os
import re
import shutil
import subprocess
import sys

import pytest
from scripts import ROOT

import medqn_tianshou

REPOSITORY = "https://example.org/medqn"


def build(config, out, repository=""):
    environ = {**os.environ, "NO_MKDOCS_2_WARNING": "1", "REPOSITORY_URL": repository}
    command = [sys.executable, "-m", "mkdocs", "build", "--strict"]
    command += ["--config-file", config, "--site-dir", out]
    return subprocess.run(command, env=environ, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    pytest.importorskip("mkdocs")
    out = tmp_path_factory.mktemp("site")
    result = build(ROOT / "mkdocs.yml", out, REPOSITORY)
    assert result.returncode == 0, result.stderr
    return out


@pytest.mark.slow
@pytest.mark.process
class TestSite:
    def test_the_api_reference_has_every_public_name_with_its_text(self, site):
        page = (site / "api/index.html").read_text()
        for name in set(medqn_tianshou.__all__) - {"__version__"}:
            assert f'id="medqn_tianshou.{name}"' in page
        assert 'id="medqn_tianshou.CompactVectorReplayBuffer.get_observations"' in page
        assert "the paper's lambda, a number or a schedule by environment step" in page
        assert re.search(r":(param|class|meth|func|returns?)\b", page) is None  # left-over reST

    def test_links_out_of_the_docs_lead_to_the_repository(self, site):
        page = (site / "architecture/index.html").read_text()
        assert f'"{REPOSITORY}/blob/main/medqn_tianshou/algorithm/loss.py"' in page
        assert f'"{REPOSITORY}/tree/main/benchmarks"' in page
        assert 'href="../own_code/#the-papers-experiments-from-python"' in page
        assert 'href="results/memory/"' in (site / "index.html").read_text()  # of the README

    def test_search_finds_pages_and_public_names(self, site):
        entries = json.loads((site / "search/search_index.json").read_text())["docs"]
        places = {entry["location"] for entry in entries}
        assert {"resume/", "tutorial/", "api/#medqn_tianshou.MeDQNPolicy"} <= places

    def test_no_page_names_scripts_pictures_or_styles_of_another_server(self, site):
        loaded = re.compile(r'<(?:script|img)[^>]*\bsrc="(http[^"]*)|<link[^>]*href="(http[^"]*)')
        for page in site.rglob("*.html"):
            assert loaded.search(page.read_text()) is None, page


@pytest.mark.slow
@pytest.mark.process
def test_a_link_that_leads_nowhere_is_a_failure(tmp_path):
    pytest.importorskip("mkdocs")
    (tmp_path / "docs/figures").mkdir(parents=True)
    for name in ("docs/hooks.py", "docs/figures/site.css"):
        shutil.copy(ROOT / name, tmp_path / name)
    config = (ROOT / "mkdocs.yml").read_text()
    before, after = config.split("nav:\n", 1)[0], config[config.index("plugins:\n") :]
    (tmp_path / "mkdocs.yml").write_text(before + after)
    (tmp_path / "README.md").write_text("[nowhere](docs/none.md)")
    (tmp_path / "CHANGELOG.md").write_text("")
    (tmp_path / "CONTRIBUTING.md").write_text("")
    result = build(tmp_path / "mkdocs.yml", tmp_path / "site")
    assert result.returncode != 0
    assert "none.md" in result.stderr
