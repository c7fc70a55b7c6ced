import dataclasses
import math
import pickle

import pytest

from sbpjax.cluster import Cluster, Device, Level, Links
from sbpjax.cluster.files import profile, profile_names
from sbpjax.cluster.quantities import parse_bytes
from sbpjax.cluster.visible import name_of
from sbpjax.errors import InvalidCluster, InvalidMesh, UnknownName

TEXT = """\
name: mybox
device:
  name: RTX 4090
  platform: cuda
  memory_bytes: 24GiB
  memory_bytes_per_second: 1.008e12
  flops_per_second: {float32: 82.6e12, bfloat16: 165.2e12}
levels:
  - {size: 2, latency_seconds: 50e-6, bytes_per_second: 1.5e9}
  - {size: 4, start_seconds: 1e-5, latency_seconds: 5e-6, bytes_per_second: 12e9}
"""


@dataclasses.dataclass
class FakeDevice:
    device_kind: str
    process_index: int = 0
    slice_index: int | None = None
    platform: str = "gpu"


def written(tmp_path, text):
    path = tmp_path / "box.yaml"
    path.write_text(text)
    return path


# Names


@pytest.mark.parametrize(
    ("name", "size", "shape"),
    [("h100", 1, ()), ("8xh100", 8, (8,)), ("4x8xh100", 32, (4, 8)), ("2x1xb200", 2, (2,)), ("16xcpu", 16, (16,))],
)
def test_a_name_counts_nodes_and_devices(name, size, shape):
    cluster = Cluster.parse(name)
    assert (cluster.size, cluster.shape, str(cluster)) == (size, shape, name)


def test_every_shipped_profile_is_sound():
    assert profile_names() == ["a100-80", "b200", "cpu", "h100", "h200"]
    for name in profile_names():
        described = profile(name)
        assert described.name == name
        assert described.is_profile
        device = described.device
        assert device.flops_per_second["bfloat16"] > 0
        outer, inner = described.levels
        assert outer.bytes_per_second < inner.bytes_per_second < device.memory_bytes_per_second
        assert (inner.at_most == 8) == (device.platform == "cuda")


def test_an_unknown_name_suggests_the_near_one():
    with pytest.raises(UnknownName, match=r"unknown cluster 'h10': did you mean 'h100'.*YAML file"):
        Cluster.parse("8xh10")


@pytest.mark.parametrize("cluster", [8, {}, b"8xh100"])
def test_what_is_no_cluster_is_refused(cluster):
    with pytest.raises(InvalidCluster, match=r"give a name such as 8xh100"):
        Cluster.parse(cluster)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("16xh100", r"'16xh100'.*at most 8.*2x8xh100"),
        ("2x2x8xh100", "3 counts for hardware of 2 levels"),
        ("0xh100", "size of 1 or more"),
    ],
)
def test_impossible_counts_are_refused(name, message):
    with pytest.raises(InvalidCluster, match=message):
        Cluster.parse(name)


def test_a_part_of_a_cluster_is_one_node_or_whole_nodes():
    cluster = Cluster.parse("4x8xh100")
    assert cluster.part(4) == Cluster.parse("4xh100")
    assert cluster.part(16) == Cluster.parse("2x8xh100")
    assert cluster.part(32) is cluster
    assert Cluster.parse("3x5xh100").part(10) == Cluster.parse("2x5xh100")
    for name, size in (("4x8xh100", 12), ("3x5xh100", 8)):  # a node of 5 devices must not grow to 8
        with pytest.raises(InvalidMesh, match="do not fill whole nodes of"):
            Cluster.parse(name).part(size)
    with pytest.raises(InvalidMesh, match="16 devices are more than the 8 of 8xh100"):
        Cluster.parse("8xh100").part(16)


@pytest.mark.parametrize("name", ["٨xh100", "4x８xh100", "²xh100"])
def test_digits_are_those_of_ascii(name):
    with pytest.raises(UnknownName, match="unknown cluster"):
        Cluster.parse(name)
    with pytest.raises(ValueError, match="not an amount of memory"):
        parse_bytes(name.replace("xh100", "GiB"))


# Files


def test_a_file_gives_a_cluster_and_is_given_back(tmp_path):
    cluster = Cluster.parse(written(tmp_path, TEXT))
    assert (cluster.name, cluster.size, cluster.device.memory_bytes) == ("mybox", 8, 24 << 30)
    assert cluster.device.flops_per_second["float32"] == 82.6e12
    assert cluster.levels[1] == Level(4, 5e-6, 12e9, start_seconds=1e-5)
    text = cluster.to_yaml(tmp_path / "again.yml")
    assert (tmp_path / "again.yml").read_text() == text
    assert Cluster.parse(str(tmp_path / "again.yml")) == cluster
    assert Cluster.from_dict(cluster.to_dict()) == cluster
    assert pickle.loads(pickle.dumps(cluster)) == cluster
    assert len({cluster, Cluster.parse(tmp_path / "again.yml")}) == 1


def test_a_cluster_file_that_cannot_be_written_is_refused(tmp_path):
    with pytest.raises(InvalidCluster, match=r"cannot write the cluster file .*No such file"):
        Cluster.parse("8xh100").to_yaml(tmp_path / "none" / "cluster.yaml")


def test_a_file_may_name_a_shipped_device(tmp_path):
    text = "name: slow\ndevice: h100\nlevels:\n  - {size: 4, latency_seconds: 1e-4, bytes_per_second: 1e9}\n"
    assert Cluster.parse(written(tmp_path, text)).device == Cluster.parse("h100").device


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("24GiB", "24 buckets", r"box.yaml, line 5: device.memory_bytes: .*72GiB"),
        ("platform: cuda", "platform: tpu", r"line 4: device.platform"),
        ("bfloat16: 165.2e12", "bfloat16: fast", r"line 7: device.flops_per_second.bfloat16"),
        ("{size: 2, ", "{size: two, ", r"line 9: levels.0.size"),
        ("{size: 4, start", "{size: 4, speed: 3, start", r"line 10: levels.1.speed: Extra inputs"),
        ("  memory_bytes_per_second: 1.008e12\n", "", r"line 2: device.memory_bytes_per_second: Field required"),
        ("{size: 4, ", "{", r"line 10: levels.1 has no size"),
        ("{float32: 82.6e12, bfloat16: 165.2e12}", "{bfloat16: 1e12}", "lacks float32"),
        ("name: mybox", "name: [", "is not YAML"),
        (TEXT, "", "box.yaml: the file"),
        (TEXT, TEXT.replace("size: 2, ", "").replace("size: 4, ", ""), "levels have no size"),
    ],
)
def test_a_wrong_file_is_refused_with_line_and_key(tmp_path, old, new, message):
    path = written(tmp_path, TEXT.replace(old, new))
    with pytest.raises(InvalidCluster, match=message):
        Cluster.from_yaml(path)


def test_a_missing_file_is_refused():
    with pytest.raises(InvalidCluster, match=r"'nowhere.yaml' cannot be read.*check the path"):
        Cluster.parse("nowhere.yaml")


@pytest.mark.parametrize(
    ("text", "expected"), [("72GiB", 72 << 30), ("80 GB", 80 * 10**9), (1024, 1024), ("1.5kib", 1536), (2.0, 2)]
)
def test_memory_is_read_as_people_write_it(text, expected):
    assert parse_bytes(text) == expected


@pytest.mark.parametrize("text", ["", "GiB", "-1GB", "3 GiBi", "0", "nan", "1e400", "9" * 400])
def test_other_amounts_are_refused(text):
    with pytest.raises(ValueError, match="not an amount of memory"):
        parse_bytes(text)


@pytest.mark.parametrize(
    "build",
    [
        lambda: Level(2, -1.0, 1.0),
        lambda: Level(2, 0.0, 0.0),
        lambda: Level(2, 0.0, 1.0, start_seconds=math.inf),
        lambda: Device("x", "cpu", 0, 1.0, {"float32": 1.0}),
        lambda: Device("x", "cpu", 1, 1.0, {"float32": math.nan}),
    ],
)
def test_senseless_figures_are_refused(build):
    with pytest.raises(InvalidCluster):
        build()


# What JAX sees


def test_virtual_cpu_devices_are_a_cpu_cluster():
    assert Cluster.detect() == Cluster.parse("8xcpu")


def test_nodes_are_told_from_where_devices_are():
    h100 = "NVIDIA H100 80GB HBM3"
    assert name_of([FakeDevice(h100, i // 8) for i in range(16)]) == "2x8xh100"
    assert name_of([FakeDevice(h100, i, slice_index=0) for i in range(8)]) == "1x8xh100"
    assert name_of([FakeDevice("NVIDIA A100-SXM4-80GB", 0)]) == "1x1xa100-80"


def test_unknown_devices_need_a_file():
    with pytest.raises(InvalidCluster, match=r"'NVIDIA H100 PCIe' \(gpu\); describe it in a YAML file"):
        name_of([FakeDevice("NVIDIA H100 PCIe")])
    with pytest.raises(InvalidCluster, match=r"different numbers of devices \(\[1, 2\]\)"):
        name_of([FakeDevice("NVIDIA H200", i) for i in (0, 0, 1)])


# Links


def unit(*sizes):
    return Cluster("unit", Cluster.parse("cpu").device, tuple(Level(n, 0.0, 1.0) for n in sizes))


def test_collectives_move_what_rings_move():
    links = Links(unit(8), {"x": 8})
    assert links.seconds("all_gather", ["x"], 800) == pytest.approx(700)
    assert links.seconds("reduce_scatter", ["x"], 800) == pytest.approx(700)
    assert links.seconds("all_reduce", ["x"], 800) == pytest.approx(1400)
    assert links.seconds("all_to_all", ["x"], 800) == pytest.approx(700)
    assert links.seconds("permute", ["x"], 800) == pytest.approx(800)


def test_axes_lie_on_the_levels_that_they_span():
    links = Links(unit(4, 8), {"data": 4, "model": 8})
    assert links.span(["data"]) == ((4, 1), (1, 1))
    assert links.span(["model"]) == ((1, 8), (8, 1))
    assert links.span(["data", "model"]) == ((4, 8), (8, 1))
    assert (links.crosses_nodes(["data"]), links.crosses_nodes(["model"])) == (True, False)


def test_an_axis_may_straddle_levels_and_share_one():
    links = Links(unit(2, 8), {"a": 4, "b": 4})
    assert links.span(["a"]) == ((2, 2), (2, 1))
    assert links.span(["b"]) == ((1, 4), (4, 1))
    uneven = Links(unit(2, 6), {"a": 3, "b": 4})
    assert uneven.span(["a"]) == ((2, 1), (2, 1))
    assert uneven.span(["b"]) == ((2, 2), (4, 1))


def test_devices_of_a_node_share_the_traffic_that_leaves_it():
    device = Cluster.parse("cpu").device
    cluster = Cluster("two", device, (Level(4, 0.0, 1.0), Level(8, 0.0, 100.0)))
    links = Links(cluster, {"node": 4, "gpu": 8})
    assert links.seconds("all_gather", ["node"], 320) == pytest.approx(3 / 4 * 320)
    assert links.seconds("all_gather", ["node", "gpu"], 320) == pytest.approx(31 / 32 * 320 / 8)
    assert links.seconds("all_to_all", ["node", "gpu"], 320) == pytest.approx(24 / 32 * 320)


def test_h100_links_are_as_XLA_schedules_them():
    """DESIGN: inside a node 13-40 us and 330-375 GB/s; across 0.3-0.6 ms and 23 GB/s, jointly about 170 GB/s."""
    links = Links(Cluster.parse("8x8xh100"), {"node": 8, "gpu": 8})

    def rate(kind, axes):
        devices = math.prod(links.mesh[a] for a in axes)
        return (2 if kind == "all_reduce" else 1) * (devices - 1) / devices / links.affine(kind, axes)[1]

    for kind in ("all_gather", "reduce_scatter", "all_reduce"):
        assert 13e-6 <= links.affine(kind, ["gpu"])[0] <= 40e-6
        assert 0.3e-3 <= links.affine(kind, ["node"])[0] <= 0.6e-3
        assert 0.3e-3 <= links.affine(kind, ["node", "gpu"])[0] <= 0.6e-3
        assert rate(kind, ["gpu"]) == pytest.approx(360e9)
        assert rate(kind, ["node"]) == pytest.approx(23e9)
        assert 160e9 <= rate(kind, ["node", "gpu"]) <= 190e9


def test_one_collective_is_never_slower_than_two_on_parts_of_its_devices():
    links = Links(Cluster.parse("8xh100"), {"a": 2, "b": 4})
    for kind in ("all_gather", "all_reduce", "all_to_all"):
        joint = links.seconds(kind, ["a", "b"], 1000)
        assert joint < links.seconds(kind, ["a"], 1000) + links.seconds(kind, ["b"], 1000)


def test_an_axis_of_one_device_costs_nothing():
    assert Links(unit(8), {"one": 1, "x": 8}).affine("all_reduce", ["one"]) == (0.0, 0.0)


def test_links_are_values():
    first, second = (Links(Cluster.parse("8xh100"), {"a": 2, "b": 4}) for _ in range(2))
    assert first == second
    assert hash(first) == hash(second)
    assert first != Links(Cluster.parse("8xh100"), {"b": 2, "a": 4})
    assert first != Links(Cluster.parse("8xh200"), {"a": 2, "b": 4})


@pytest.mark.parametrize("mesh", [{"a": 4}, {"a": 16}, {"a": 8, "b": 0}])
def test_a_mesh_of_another_size_is_refused(mesh):
    with pytest.raises(InvalidMesh, match=r"mesh \{'a'"):
        Links(Cluster.parse("8xh100"), mesh)


def test_unknown_axes_and_kinds_are_refused():
    links = Links(Cluster.parse("8xh100"), {"model": 8})
    with pytest.raises(UnknownName, match="'modle': did you mean 'model'"):
        links.seconds("all_gather", ["modle"], 1)
    with pytest.raises(UnknownName, match="'allgather': did you mean 'all_gather'"):
        links.seconds("allgather", ["model"], 1)
