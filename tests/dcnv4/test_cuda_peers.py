"""Other implementations beside ours: found, called with the right arguments and layouts, left out with a reason."""

from __future__ import annotations

import hashlib
import os
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

from orinport.dcnv4.arguments import Geometry
from orinport.errors import OrinportError

torch = pytest.importorskip("torch", reason="PyTorch is not installed: pip install 'orinport[torch]'")
pytestmark = pytest.mark.torch

from orinport.dcnv4 import cuda_bench, cuda_peers  # noqa: E402
from orinport.dcnv4.composed import dcnv4_composed  # noqa: E402
from orinport.dcnv4.cuda_compile import Loaded  # noqa: E402

needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no NVIDIA GPU that PyTorch can use")
T_LEVELS = [(56, 4), (28, 8), (14, 16), (7, 32)]
GEOMETRIES = [
    Geometry(4, 16),
    Geometry(2, 8, offset_scale=0.5),
    Geometry(2, 4, stride=(2, 1)),
    Geometry(2, 8, dilation=(2, 1), padding=(2, 1), offset_scale=-1.5),
    Geometry(2, 5, kernel=(3, 5), padding=(1, 2)),
    Geometry(3, 8, remove_center=True),
    Geometry(2, 4, kernel=(2, 2), padding=(0, 1), remove_center=True, stride=(1, 2)),
]


def draw(geometry, batch=2, height=6, width=5, dtype=torch.float64):
    generator = torch.Generator().manual_seed(1)
    rows, columns = geometry.output_size(height, width)
    value = torch.randn(batch, height, width, geometry.channels, generator=generator).to(dtype)
    vectors = torch.randn(batch, rows, columns, geometry.width, generator=generator).to(dtype)
    vectors[..., geometry.used_width :] = float("nan")
    return cuda_bench.Tensors(value, vectors, value.new_empty((batch, rows, columns, geometry.channels)))


@pytest.fixture
def importable(monkeypatch, tmp_path):
    """A function that makes modules importable, and hides the real ones; everything is undone afterwards."""
    monkeypatch.setattr(sys, "path", list(sys.path))

    def install(**modules):
        for name in ("DCNv4", "DCNv4.functions", "deformops", "deformops.registry", "triton"):
            monkeypatch.setitem(sys.modules, name, None)
        for name, content in modules.items():
            module = ModuleType(name.replace("__", "."))
            vars(module).update(content)
            monkeypatch.setitem(sys.modules, module.__name__, module)

    return install


def one(name, **options):
    peers, missing = cuda_peers.find_peers(**options)
    found = [peer for peer in peers if peer.name.startswith(name)]
    return found[0] if found else next(each for each in missing if each.name == name)


# ---- the published package


@pytest.mark.parametrize("geometry", GEOMETRIES, ids=str)
def test_published_arguments_in_their_order(importable, geometry):
    class Function:
        @staticmethod
        def apply(value, vectors, kh, kw, sh, sw, ph, pw, dh, dw, group, channels, scale, step, remove_center):
            assert step == 256
            theirs = Geometry(group, channels, (kh, kw), (sh, sw), (ph, pw), (dh, dw), scale, remove_center)
            return dcnv4_composed(value, vectors, theirs)

    importable(DCNv4={}, DCNv4__functions={"DCNv4Function": Function})
    tensors = draw(geometry)
    one(cuda_peers.PUBLISHED).prepare(tensors, geometry)()
    assert torch.equal(tensors.output, dcnv4_composed(tensors.value, tensors.offset_mask, geometry))


def test_published_from_a_folder(importable, monkeypatch, tmp_path):
    importable()
    for name in ("DCNv4", "DCNv4.functions"):
        monkeypatch.delitem(sys.modules, name)
    (tmp_path / "DCNv4").mkdir()
    (tmp_path / "DCNv4" / "__init__.py").write_text("")
    (tmp_path / "DCNv4" / "functions.py").write_text("class DCNv4Function:\n    apply = print\n")
    before = list(sys.path)
    assert isinstance(one(cuda_peers.PUBLISHED, folders=[tmp_path]), cuda_peers.Peer)
    assert sys.path == [*before, str(tmp_path.resolve())]  # behind what is installed, in whose place it cannot come
    with pytest.raises(OrinportError, match="There is no folder"):
        cuda_peers.find_peers([tmp_path / "none"])


# ---- deformops


def their_operator(value, packed, **options):
    """DCNv3's sampling as deformops documents it, point by point, in float64; written for this test."""
    kernel_h, kernel_w = options["kernel_size"]
    (stride_h, stride_w), (pad_h, pad_w), (dil_h, dil_w) = options["stride"], options["padding"], options["dilation"]
    groups, depth, spread = options["groups"], options["group_dims"], options["spread"]
    assert options["method"] == "linear"
    batch, height, width, _ = value.shape
    _, rows, columns, _ = packed.shape
    points = [(i, j) for i in range(kernel_w) for j in range(kernel_h)]
    if options["drop_center"]:
        points.remove((kernel_w // 2, kernel_h // 2))
    triples = packed[..., : groups * len(points) * 3].reshape(batch, rows, columns, groups, len(points), 3)
    image = torch.nn.functional.pad(value, (0, 0, 1, 1, 1, 1))
    output = value.new_zeros(batch, rows, columns, groups, depth)
    mid_x, mid_y = dil_w * (kernel_w - 1) // 2, dil_h * (kernel_h - 1) // 2
    for n, y, x, g in torch.cartesian_prod(*map(torch.arange, (batch, rows, columns, groups))).tolist():
        for k, (i, j) in enumerate(points):
            dx, dy, weight = triples[n, y, x, g, k].tolist()
            at_x = x * stride_w - pad_w + mid_x * (1 - spread) + (i * dil_w + dx) * spread
            at_y = y * stride_h - pad_h + mid_y * (1 - spread) + (j * dil_h + dy) * spread
            if not (-1 < at_x < width and -1 < at_y < height):
                continue
            left, top = int(at_x // 1), int(at_y // 1)
            fx, fy = at_x - left, at_y - top
            corner = image[n, top + 1 : top + 3, left + 1 : left + 3, g * depth : (g + 1) * depth]
            sample = (1 - fy) * ((1 - fx) * corner[0, 0] + fx * corner[0, 1])
            output[n, y, x, g] += weight * (sample + fy * ((1 - fx) * corner[1, 0] + fx * corner[1, 1]))
    return output.reshape(batch, rows, columns, groups * depth)


class Operator:
    """In the place of deformops' operator."""

    reason = ""

    def is_registered(self, backend):
        return backend == "their Triton" and not self.reason

    def unavailable_reason(self, backend):
        return self.reason

    def __call__(self, value, packed, *, backend, **options):
        assert backend == "their Triton"
        return their_operator(value, packed, **options)


def registry(operator):
    return {"attn": operator, "Backend": SimpleNamespace(TRITON="their Triton")}


@pytest.mark.parametrize("geometry", GEOMETRIES, ids=str)
def test_deformops_arguments_and_packing(importable, geometry):
    importable(triton={}, deformops={}, deformops__registry=registry(Operator()))
    tensors = draw(geometry, batch=1)
    before = tensors.offset_mask.clone()
    one(cuda_peers.DEFORMOPS).prepare(tensors, geometry)()
    expected = dcnv4_composed(tensors.value, tensors.offset_mask, geometry)
    torch.testing.assert_close(tensors.output, expected, rtol=1e-12, atol=1e-12)
    assert torch.equal(before.nan_to_num(), tensors.offset_mask.nan_to_num())


def test_interleave():
    geometry = Geometry(1, 4, kernel=(1, 2), padding=(0, 0))
    vectors = torch.tensor([10.0, 11, 20, 21, 1, 2, -7, -8]).reshape(1, 1, 1, 8)
    assert cuda_peers.interleave(vectors, geometry).flatten().tolist() == [10, 11, 1, 20, 21, 2, -7, -8]


def test_what_is_not_installed_is_named(importable):
    importable()
    peers, missing = cuda_peers.find_peers()
    assert peers == []
    reasons = {each.name: each.reason for each in missing}
    assert reasons.keys() == {cuda_peers.PUBLISHED, cuda_peers.PTX, cuda_peers.DEFORMOPS}
    assert "DCNv4" in reasons[cuda_peers.PUBLISHED]
    assert "triton" in reasons[cuda_peers.DEFORMOPS]
    assert reasons[cuda_peers.PTX] == "no files were given"


def test_deformops_says_why_its_kernel_is_not_there(importable):
    operator = Operator()
    operator.reason = "no CUDA device is available"
    importable(triton={}, deformops={}, deformops__registry=registry(operator))
    assert one(cuda_peers.DEFORMOPS).reason == "its Triton kernel is not available: no CUDA device is available"
    importable(triton={}, deformops={}, deformops__registry={})
    assert one(cuda_peers.DEFORMOPS).reason.startswith("AttributeError: ")


# ---- NVIDIA's PTX


PTX_TEXT = b".version 7.1\n.target sm_60\n"


@pytest.fixture
def known(monkeypatch):
    """The published table, with PTX_TEXT in the place of the kernel for 28x28 at batch 1."""
    kernels = list(cuda_peers.ptx_kernels())
    digest = hashlib.sha256(PTX_TEXT).hexdigest()
    at = next(i for i, kernel in enumerate(kernels) if kernel.file == "dcnv4_stage1_b1.ptx")
    kernels[at] = cuda_peers.PtxKernel(**{**vars(kernels[at]), "sha256": digest})
    monkeypatch.setattr(cuda_peers, "ptx_kernels", lambda: tuple(kernels))
    return kernels[at]


def test_the_launches_cover_the_outputs_once():
    """Threads times channels of a thread is the number of outputs (a thread has 8 channels, 4 at 7x7)."""
    assert [(k.batch, k.size, k.group) for k in cuda_peers.ptx_kernels()] == [
        (128, 56, 4),
        *((1, *level) for level in T_LEVELS),
    ]
    for kernel in cuda_peers.ptx_kernels():
        channels = 4 if kernel.size == 7 else 8
        outputs = kernel.batch * kernel.size**2 * kernel.group * 16
        assert kernel.grid[0] * kernel.grid[1] * kernel.threads * channels == outputs


def test_ptx_is_known_by_its_text(known, tmp_path):
    file = tmp_path / "any name.ptx"
    file.write_bytes(PTX_TEXT + b"\0\0\0a line behind the text\0")
    (tmp_path / "other.ptx").write_bytes(PTX_TEXT + b"\n")
    (tmp_path / "dcnv4_stage0_b1.ptx").write_bytes(b"not it")
    for path in (file, tmp_path):
        assert cuda_peers.read_ptx(path) == {known: PTX_TEXT}


def test_ptx_that_is_not_known_is_refused(known, tmp_path):
    """Its launch and the sizes in its code would not be known either."""
    file = tmp_path / "dcnv4_stage1_b1.ptx"
    for content in (b"", PTX_TEXT + b"x"):
        file.write_bytes(content)
        for path in (file, tmp_path):
            with pytest.raises(OrinportError, match="holds none of the PTX files"):
                cuda_peers.find_peers(ptx=path)
    file.write_bytes(b"x" * ((1 << 20) + 1))
    with pytest.raises(OrinportError, match="larger than 1 MiB"):
        cuda_peers.read_ptx(file)
    with pytest.raises(OrinportError, match="cannot be read"):
        cuda_peers.read_ptx(tmp_path / "none.ptx")


class Device:
    """In the place of a GPU: records what is loaded and launched."""

    architecture = (9, 0)

    def __init__(self):
        self.loaded, self.launched = [], []

    def load_ptx(self, text, symbol):
        import ctypes

        self.loaded.append((text, symbol))

        def launch(function, gx, gy, gz, bx, by, bz, shared, stream, arguments, extra):
            slots = (ctypes.c_void_p * 3).from_address(arguments)
            pointers = [ctypes.c_void_p.from_address(slot).value for slot in slots]
            self.launched.append(((gx, gy, gz), (bx, by, bz), shared, stream, pointers, extra))
            return (0,)

        return Loaded(symbol, 5, SimpleNamespace(cuLaunchKernel=launch))


def test_ptx_launch(known, monkeypatch):
    monkeypatch.setattr(torch.cuda, "current_stream", lambda: SimpleNamespace(cuda_stream=77))
    device = Device()
    peer = cuda_peers._ptx_peer({known: PTX_TEXT}, lambda ordinal: device)
    sets = [draw(Geometry(8, 16), 1, 28, 28, torch.float16) for _ in range(2)]
    for run in [peer.prepare(tensors, Geometry(8, 16)) for tensors in sets]:
        run()
    assert device.loaded == [(PTX_TEXT, "dcn_kernel")]
    assert device.launched == [
        ((14, 7, 1), (128, 1, 1), 0, 77, [t.data_ptr() for t in (s.value, s.offset_mask, s.output)], 0) for s in sets
    ]


@pytest.mark.parametrize(
    ("geometry", "batch", "size", "dtype", "reason"),
    [
        (Geometry(8, 16), 1, 28, torch.float32, "its kernels are for float16"),
        (Geometry(8, 16), 1, 28, torch.bfloat16, "its kernels are for float16"),
        (Geometry(8, 16), 2, 28, torch.float16, "it has no kernel for 2x28x28x128"),
        (Geometry(8, 16), 1, 29, torch.float16, "it has no kernel for 1x29x29x128"),
        (Geometry(4, 16), 1, 28, torch.float16, "it has no kernel for 1x28x28x64"),
        (Geometry(4, 32), 1, 28, torch.float16, "groups of 16 channels"),
        (Geometry(8, 16, offset_scale=2.0), 1, 28, torch.float16, "offset scale 1"),
        (Geometry(8, 16, remove_center=True), 1, 28, torch.float16, "its kernels are for 3x3"),
        (Geometry(8, 16, padding=(2, 2), dilation=(2, 2)), 1, 28, torch.float16, "dilation 1"),
        (Geometry(16, 16), 1, 14, torch.float16, "dcnv4_stage2_b1.ptx, which is for this size, was not given"),
    ],
)
def test_ptx_refuses_what_its_code_is_not_for(known, geometry, batch, size, dtype, reason):
    device = Device()
    peer = cuda_peers._ptx_peer({known: PTX_TEXT}, lambda ordinal: device)
    with pytest.raises(cuda_peers.PeerUnfitError, match=reason):
        peer.prepare(draw(geometry, batch, size, size, dtype), geometry)
    assert not device.loaded


def test_ptx_refuses_rows_of_another_width(known):
    geometry = Geometry(8, 16)
    tensors = draw(geometry, 1, 28, 28, torch.float16)
    wide = torch.cat([tensors.offset_mask, tensors.offset_mask[..., :8]], -1)
    for vectors in (wide, wide[..., :216]):
        with pytest.raises(cuda_peers.PeerUnfitError, match="rows of 216 numbers"):
            cuda_peers._kernel_for(cuda_bench.Tensors(tensors.value, vectors, tensors.output), geometry)


def test_ptx_refuses_an_older_gpu():
    kernel = cuda_peers.ptx_kernels()[0]
    device = Device()
    device.architecture = (8, 0)
    peer = cuda_peers._ptx_peer({kernel: PTX_TEXT}, lambda ordinal: device)
    tensors = cuda_bench.Tensors(
        *(torch.empty((128, 56, 56, width), dtype=torch.float16, device="meta") for width in (64, 112, 64))
    )
    with pytest.raises(cuda_peers.PeerUnfitError, match="is for sm_86 and later, this GPU is sm_80"):
        peer.prepare(tensors, Geometry(4, 16))


# ---- the measurement


def test_a_peer_that_fails_is_left_out_with_its_words(monkeypatch):
    geometry = Geometry(2, 8)
    tensors = draw(geometry)
    problem = cuda_bench.Problem(2, 6, 5, geometry, torch.float64)
    monkeypatch.setattr(cuda_bench.Tensors, "draw", classmethod(lambda cls, problem, seed=0: tensors))
    monkeypatch.setattr(cuda_bench, "time_us", lambda runs, launches: (1.5, (1.0, 2.0)))

    def right(tensors, geometry):
        return lambda: tensors.output.copy_(dcnv4_composed(tensors.value, tensors.offset_mask, geometry))

    def wrong(tensors, geometry):
        return lambda: tensors.output[0].fill_(0)

    def unfit(tensors, geometry):
        raise cuda_peers.PeerUnfitError("it has no kernel for this")

    def broken(tensors, geometry):
        def run():
            raise AssertionError("first line\nsecond line")

        return run

    peers = [cuda_peers.Peer(f.__name__, f) for f in (right, unfit, broken, wrong)]
    results = cuda_bench.measure(problem, configurations=(), peers=peers)
    assert [(each.name, each.error, each.microseconds) for each in results.peers] == [
        ("right", 0.0, 1.5),
        ("wrong", float("inf"), 1.5),
    ]
    assert results.left_out == [
        cuda_peers.LeftOut("unfit", "it has no kernel for this"),
        cuda_peers.LeftOut("broken", "AssertionError: first line"),
    ]


def test_bench_prints_peers_and_reasons(monkeypatch, capsys, importable):
    from orinport.cli import dcnv4_cuda
    from orinport.dcnv4 import cuda_compile

    importable()
    measured = cuda_bench.Measurement("ours", 2.0, (1.9, 2.1), 1e-4, 3)
    theirs = cuda_bench.Measurement("theirs", 4.0, (3.9, 4.1), 0.5)
    results = cuda_bench.Results([measured], [theirs], [cuda_peers.LeftOut("another", "its kernels are for float16")])
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    monkeypatch.setattr(cuda_compile, "cuda_device", lambda ordinal: SimpleNamespace(identity="a GPU"))
    monkeypatch.setattr(cuda_bench, "copy_bandwidth", lambda: 1e12)
    monkeypatch.setattr(cuda_bench, "measure", lambda problem, **options: results)
    assert dcnv4_cuda.bench(batch=(1,)) == 0  # a peer's error is shown and is none of ours
    lines = capsys.readouterr().out.splitlines()
    assert "NVIDIA's PTX: left out: no files were given" in lines
    assert any(line.startswith("deformops (Triton): left out: ") for line in lines)
    assert "       4.00 us (3.90 to 4.10)   38 %  error 5.0e-01  theirs" in lines
    assert lines.count("  another: left out: its kernels are for float16") == 4
    with pytest.raises(OrinportError, match="--tune times our configurations alone"):
        dcnv4_cuda.bench(tune=True, peer_ptx=Path("x.ptx"))


# ---- on a GPU


@pytest.mark.gpu
@needs_gpu
def test_ptx_is_assembled_and_launched_by_the_driver(known):
    """With PTX of our own that NVRTC makes: three pointers in this order, on a stream, in a CUDA graph."""
    try:
        from cuda.core import Program, ProgramOptions
    except ImportError:
        from cuda.core.experimental import Program, ProgramOptions
    from orinport.dcnv4.cuda_compile import cuda_device

    source = """extern "C" __global__ void dcn_kernel(const short* value, const short* vectors, short* output) {
        int at = (blockIdx.y * gridDim.x + blockIdx.x) * blockDim.x + threadIdx.x;
        for (int i = at * 8; i < at * 8 + 8; ++i) output[i] = value[i] ^ vectors[i];
    }"""
    text = bytes(Program(source, "c++", ProgramOptions(arch="sm_80")).compile("ptx").code)
    peer = cuda_peers._ptx_peer({known: text.rstrip(b"\0")}, cuda_device)
    tensors = cuda_bench.Tensors.draw(cuda_bench.Problem(1, 28, 28, Geometry(8, 16)))
    run = peer.prepare(tensors, Geometry(8, 16))
    value, vectors = tensors.value.view(torch.int16), tensors.offset_mask.view(torch.int16)
    expected = value.flatten() ^ vectors.flatten()[: value.numel()]
    run()
    assert torch.equal(tensors.output.view(torch.int16).flatten(), expected)
    tensors.output.zero_()
    cuda_bench.time_us([run], 3)
    assert torch.equal(tensors.output.view(torch.int16).flatten(), expected)


@pytest.mark.gpu
@needs_gpu
@pytest.mark.skipif(
    "ORINPORT_DCNV4_PTX" not in os.environ, reason="NVIDIA's PTX is not shipped: ORINPORT_DCNV4_PTX names its folder"
)
@pytest.mark.parametrize(("batch", "size", "group"), [(128, 56, 4), *((1, *level) for level in T_LEVELS)])
def test_ptx_of_nvidia(batch, size, group):
    """The kernels of batch 1 sum in float16, which costs about 6e-4."""
    peer = one(cuda_peers.PTX, ptx=Path(os.environ["ORINPORT_DCNV4_PTX"]))
    results = cuda_bench.measure(cuda_bench.Problem(batch, size, size, Geometry(group, 16)), peers=[peer])
    assert results.left_out == []
    assert results.peers[0].error < (3e-4 if batch == 128 else 2e-3)


@pytest.mark.gpu
@needs_gpu
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32], ids=str)
@pytest.mark.parametrize("geometry", GEOMETRIES, ids=str)
def test_deformops(geometry, dtype):
    pytest.importorskip("deformops", reason="deformops is not installed, nor on the import path")
    peer = one(cuda_peers.DEFORMOPS)
    assert isinstance(peer, cuda_peers.Peer), peer
    results = cuda_bench.measure(cuda_bench.Problem(3, 17, 12, geometry, dtype), peers=[peer])
    assert results.left_out == []
    assert results.peers[0].error < {torch.float16: 3e-4, torch.bfloat16: 5e-3, torch.float32: 2e-6}[dtype]
