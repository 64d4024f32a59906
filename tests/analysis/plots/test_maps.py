import base64
import io
import math
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from feal.analysis.plots import PLOTS, read_plot_rows, save_plot
from feal.analysis.plots.maps import draw_map
from feal.analysis.runs import Run, open_run
from feal.annotation import Answer, Query
from feal.data import open_labels, open_prepared
from feal.errors import FealError
from feal.experiment import start
from feal.fileio import write_text
from feal.rundir.site_store import Store
from feal.testing import write_sites
from tests.analysis.fabricated import fabricated, keep
from tests.runs import differences, fingerprint, tiny_polyps

MAPS = PLOTS.get("uncertainty-maps")
KINDS = ["image", "label", "aleatoric, global", "aleatoric, local", "epistemic, global"]
LARGEST, WIDEST = math.log(3), -math.lgamma(3)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_sites(tmp_path_factory.mktemp("data") / "noise", "segmentation")


@pytest.fixture
def run(tmp_path: Path, data: Path) -> Run:
    """Three images chosen at alder at the end of the first round, two of them labelled, and none at birch."""
    run = fabricated(tmp_path, classes="abc", task="segmentation", dataset=str(data))
    ids = ["alder-03", "alder-01", "alder-07"]
    flat = np.ones((3, 32, 32), np.float16)
    share = np.arange(1024, dtype=np.float16).reshape(32, 32) / 1024
    keep(
        run,
        "alder",
        "round-001",
        rows=[1, 3, 7],
        map_aleatoric_global=flat * np.float16(LARGEST / 2),
        map_aleatoric_local=np.float16(LARGEST) * share * flat,
        map_epistemic_global=flat * np.float16(WIDEST),
    )
    keep(run, "birch", "round-001", rows=[1], map_aleatoric_global=flat[:0])
    folder = tmp_path / "sites" / "alder"
    write_text(
        folder / "selections" / "round-002.csv", "sample,rank,score\n" + "".join(f"{i},1,0.5\n" for i in ids)
    )
    truth = open_labels(open_prepared(data).site("alder")).of(ids[:1]).numpy()
    with closing(Store(folder / "site.sqlite")) as store:
        store.admit(run="run", data=open_prepared(data).digest, settings="{}")
    with closing(Store(folder / "site.sqlite")) as store, store.transaction():
        store.add_queries([Query(sample=i, round=2, rank=1, score=0.5, model="") for i in ids])
        store.add_answers([Answer(sample=ids[0], label=truth[0], by="oracle")])
    return run


def _picture(row: dict[str, object]) -> Image.Image:
    return Image.open(io.BytesIO(base64.b64decode(str(row["image"]).partition(",")[2])))


def test_no_picture_unless_asked_for(run: Run) -> None:
    assert read_plot_rows(MAPS, [run]) == []
    assert read_plot_rows(MAPS, [run], pictures=True)
    assert read_plot_rows(PLOTS.get("energy"), [run], pictures=True) == []


def test_the_first_by_rank_with_picture_label_and_maps(run: Run, data: Path) -> None:
    rows = read_plot_rows(MAPS, [run], pictures=True)
    assert [(row["site"], row["rank"], row["kind"]) for row in rows] == [
        ("alder", rank, kind) for rank in (1, 2) for kind in KINDS
    ]
    assert {(row["arm"], row["round"]) for row in rows} == {("feal", 1)}
    image = open_prepared(data).site("alder").images(["alder-03"])[0].numpy()
    shown = np.asarray(_picture(rows[0]).resize((32, 32), Image.Resampling.BOX)) / 255
    # JPEG and enlarging blur pure noise; another image would have nothing in common with it.
    assert np.corrcoef(shown.mean(2).ravel(), image.mean(0).ravel())[0, 1] > 0.8
    assert rows[1]["image"] != rows[0]["image"]
    assert rows[6]["image"] is None
    assert all(max(_picture(row).size) <= 160 for row in rows if row["image"])


def test_maps_are_shares_of_the_largest_possible_in_colours_common_to_both_models(run: Run) -> None:
    rows = {row["kind"]: row for row in read_plot_rows(MAPS, [run], pictures=True) if row["rank"] == 2}
    assert rows["aleatoric, global"]["mean"] == pytest.approx(0.5, abs=1e-3)
    assert rows["epistemic, global"]["mean"] == pytest.approx(1, abs=1e-3)
    for kind in ("aleatoric, global", "aleatoric, local"):
        assert (rows[kind]["low"], rows[kind]["high"]) == pytest.approx((0, 1), abs=2e-3)
    shades = np.asarray(_picture(rows["aleatoric, global"]))
    assert np.median(shades) == pytest.approx(127, abs=1)
    local = np.asarray(_picture(rows["aleatoric, local"]))
    assert local[0, 0] <= 1
    assert local[-1, -1] >= 253


def test_a_map_keeps_its_values_beside_the_outline_of_the_mask() -> None:
    mask = np.zeros((144, 144), np.uint8)
    mask[20:60, 30:90] = 1
    values = np.linspace(0, 1, mask.size).reshape(mask.shape)
    shades = np.asarray(draw_map(values, mask, low=0.0, high=1.0))
    edge = np.zeros_like(mask, dtype=bool)
    edge[20:60, 30:90] = True
    edge[21:59, 31:89] = False
    assert (shades[edge] == 255).all()
    assert shades[~edge] / 254 == pytest.approx(values[~edge], abs=0.5 / 254 + 1e-3)
    flat = np.asarray(draw_map(values, mask, low=0.5, high=0.5))
    assert np.isfinite(flat).all()


def test_the_plot_has_every_image(run: Run) -> None:
    figure = MAPS.draw(read_plot_rows(MAPS, [run], pictures=True))
    panels = figure.axes[:10]
    assert sum(len(axes.images) for axes in panels) == 9
    assert [text.get_text() for axes in panels for text in axes.texts] == ["not labelled"]
    assert panels[0].get_ylabel() == "alder\nrank 1"
    assert panels[2].get_title().startswith("aleatoric\nglobal\nfrom 0.00")
    assert len(save_plot(figure, "svg")) < 500_000


def _without_maps(tmp_path: Path) -> Iterator[Run]:
    yield fabricated(tmp_path, task="segmentation")
    yield fabricated(tmp_path, task="segmentation", rounds=0)
    yield fabricated(tmp_path)


def test_nothing_to_see_without_maps(tmp_path: Path) -> None:
    for run in _without_maps(tmp_path):
        assert read_plot_rows(MAPS, [run], pictures=True) == []


def test_missing_or_other_data_are_one_sentence(run: Run, tmp_path: Path) -> None:
    other = write_sites(tmp_path / "other", "segmentation", hidden=1)
    changed = fabricated(tmp_path, classes="abc", task="segmentation", dataset=str(other))
    with pytest.raises(FealError, match="is not the prepared set that"):
        read_plot_rows(MAPS, [changed], pictures=True)
    gone = fabricated(tmp_path, classes="abc", task="segmentation", dataset="fed-polyp")
    with pytest.raises(FealError, match="fed-polyp is not prepared"):
        read_plot_rows(MAPS, [gone], pictures=True)
    small = np.ones((3, 8, 8), np.float16)
    keep(run, "alder", "round-001", rows=[1], map_aleatoric_global=small)
    with pytest.raises(FealError, match="other images than"):
        read_plot_rows(MAPS, [run], pictures=True)
    write_text(
        tmp_path / "sites" / "alder" / "selections" / "round-002.csv", "sample,rank,score\nstranger,1,0.5\n"
    )
    with pytest.raises(FealError, match="stranger"):
        read_plot_rows(MAPS, [run], pictures=True)


@pytest.mark.slow
def test_a_run_s_own_maps_are_shown_and_nothing_is_written(tmp_path: Path) -> None:
    start(tiny_polyps(), out=tmp_path / "run")
    before = fingerprint(tmp_path / "run")
    run = open_run(tmp_path / "run")
    rows = read_plot_rows(MAPS, [run], pictures=True)
    assert differences(before, fingerprint(tmp_path / "run")) == []
    assert [row["kind"] for row in rows] == KINDS * 4
    assert {row["site"] for row in rows} == set(run.sites)
    assert all(row["image"] for row in rows)
    assert all(0 <= row["low"] <= row["mean"] <= row["high"] <= 1 for row in rows if row["mean"] is not None)
