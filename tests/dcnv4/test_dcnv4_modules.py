"""Modules and models: parameter names and sizes of the published ones, shapes, checkpoints, what a module computes."""

from __future__ import annotations

import numpy as np
import pytest

from orinport.dcnv4 import reference
from orinport.errors import OrinportError

pytestmark = pytest.mark.torch

DEPTHS = {"t": (4, 4, 18, 4), "s": (4, 4, 21, 4), "b": (4, 4, 21, 4), "l": (5, 5, 22, 5)}
WIDTHS = {
    "t": (112, 216, 432, 864),
    "s": (136, 272, 544, 1080),
    "b": (192, 384, 760, 1512),
    "l": (272, 544, 1080, 2160),
}


def published_names(letter):
    """The names of a published checkpoint, written out from the structure of the models."""
    pair = ("weight", "bias")
    names = [f"patch_embed.{part}.{p}" for part in ("conv1", "norm1.1", "conv2", "norm2.1") for p in pair]
    for level, depth in enumerate(DEPTHS[letter]):
        for block in range(depth):
            prefix = f"levels.{level}.blocks.{block}."
            parts = ["norm1.0", "dcn.offset_mask", "dcn.value_proj", "norm2.0", "mlp.fc1"]
            parts += ["dcn.offset_mask_dw"] if letter != "t" else []
            names += [f"{prefix}{part}.{p}" for part in parts for p in pair]
            names += [f"{prefix}dcn.output_proj.weight", f"{prefix}mlp.fc2.weight"]
            if letter == "l":
                names += [f"{prefix}dcn.output_proj.bias", f"{prefix}mlp.fc2.bias"]
            if letter != "t":
                names += [f"{prefix}gamma1", f"{prefix}gamma2"]
        if letter == "t":
            names += [f"levels.{level}.norm.0.{p}" for p in pair]
        if level < 3:
            names += [f"levels.{level}.downsample.{n}" for n in ("conv.weight", "norm.1.weight", "norm.1.bias")]
    names += ["conv_head.0.weight", "head.weight", "head.bias"]
    return {
        *names,
        *(f"conv_head.1.0.{n}" for n in (*pair, "running_mean", "running_var", "num_batches_tracked")),
    }


@pytest.fixture(scope="module")
def tiny(torch):
    from orinport.dcnv4.flash_internimage import flash_internimage

    return flash_internimage("t", seed=1)


@pytest.mark.parametrize("letter", "tsbl")
def test_names_and_widths_are_the_published_ones(torch, letter):
    from orinport.dcnv4.flash_internimage import VARIANTS, FlashInternImage

    with torch.device("meta"):
        model = FlashInternImage(VARIANTS[f"flash-internimage-{letter}"])
    state = model.state_dict()
    assert set(state) == published_names(letter)
    found = [state[f"levels.{level}.blocks.0.dcn.offset_mask.weight"].shape[0] for level in range(4)]
    assert tuple(found) == WIDTHS[letter]


def test_size_of_the_tiny_model(tiny):
    assert sum(parameter.numel() for parameter in tiny.parameters()) == 29_815_528


def test_the_tiny_models_operators(torch, tiny, monkeypatch):
    """30 operators of the shapes of the published model at 224x224."""
    from orinport.dcnv4 import modules

    seen = []
    operator = modules.dcnv4

    def record(value, vectors, **arguments):
        seen.append((tuple(value.shape), tuple(vectors.shape), arguments["group"], arguments["group_channels"]))
        return operator(value, vectors, **arguments)

    monkeypatch.setattr(modules, "dcnv4", record)
    with torch.no_grad():
        assert tiny(torch.zeros(1, 3, 224, 224)).shape == (1, 1000)
    expected = []
    for count, side, group in ((4, 56, 4), (4, 28, 8), (18, 14, 16), (4, 7, 32)):
        width = WIDTHS["t"][(4, 8, 16, 32).index(group)]
        expected += [((1, side, side, group * 16), (1, side, side, width), group, 16)] * count
    assert seen == expected


def test_random_weights_keep_the_operators_alive(torch, tiny):
    """Other offsets or masks in the first block change the logits: nothing in a test passes by zeros."""
    from orinport.dcnv4.flash_internimage import flash_internimage

    images = torch.randn(1, 3, 64, 64, generator=torch.Generator().manual_seed(0))
    other = flash_internimage("t", seed=1)
    with torch.no_grad():
        before = tiny(images)
        assert torch.equal(before, other(images))
        other.levels[3].blocks[3].dcn.offset_mask.weight.mul_(0.5)
        assert (other(images) - before).abs().max() > 0.01 * before.std()
        assert not torch.equal(before, flash_internimage("t", seed=2)(images))


@pytest.mark.parametrize("name", ["t", "T", "flash_intern_image_t", "FlashInternImage-T", "flash-internimage-t"])
def test_spellings(name):
    from orinport.dcnv4.flash_internimage import variant_name

    assert variant_name(name) == "flash-internimage-t"


def test_unknown_model():
    from orinport.dcnv4.flash_internimage import variant_name

    with pytest.raises(OrinportError, match="There is no model 'resnet'"):
        variant_name("resnet")


@pytest.mark.parametrize("wrap", ["plain", "model", "module", "training"])
def test_checkpoints(torch, tiny, tmp_path, wrap):
    """As it is written by torch.save, under `model`, with a wrapper's prefix, and beside training settings."""
    from orinport.dcnv4.flash_internimage import flash_internimage

    state = tiny.state_dict()
    if wrap == "model":
        state = {"model": state, "epoch": 300}
    elif wrap == "module":
        state = {"module": {f"module.{name}": tensor for name, tensor in state.items()}}
    elif wrap == "training":
        settings = type("CfgNode", (dict,), {"__module__": "yacs.config"})
        import sys
        import types

        sys.modules["yacs"], sys.modules["yacs.config"] = types.ModuleType("yacs"), types.ModuleType("yacs.config")
        sys.modules["yacs.config"].CfgNode = settings
        state = {"model": state, "config": settings(EPOCHS=300, NESTED=settings(A=1))}
    path = tmp_path / "checkpoint.pth"
    torch.save(state, path)
    if wrap == "training":
        del sys.modules["yacs"], sys.modules["yacs.config"]
    loaded = flash_internimage("t", checkpoint=path)
    for one, other in zip(tiny.state_dict().values(), loaded.state_dict().values(), strict=True):
        assert torch.equal(one, other)


class _Evil:
    def __reduce__(self):
        return (print, ("never",))


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (lambda state: {"model": state, "extra": _Evil()}, "objects other than tensors"),
        (lambda state: {k: v for k, v in state.items() if k != "head.bias"}, "lacks head.bias"),
        (lambda state: {**state, "extra.weight": state["head.bias"]}, "has, but the model has not, extra.weight"),
        (lambda state: {**state, "head.bias": state["head.bias"][:3]}, "other shapes for head.bias"),
        (lambda state: list(state.values()), "holds no state dict"),
        (lambda state: {"epoch": 3}, "holds no state dict"),
    ],
)
def test_checkpoints_that_are_refused(torch, tiny, tmp_path, content, words, capsys):
    from orinport.dcnv4.flash_internimage import flash_internimage

    path = tmp_path / "checkpoint.pth"
    torch.save(content(tiny.state_dict()), path)
    with pytest.raises(OrinportError, match=words):
        flash_internimage("t", checkpoint=path)
    assert "never" not in capsys.readouterr().out


@pytest.mark.parametrize("content", [None, b"", b"not a checkpoint", b"PK\x03\x04 broken"])
def test_files_that_are_no_checkpoints(torch, tmp_path, content):
    from orinport.dcnv4.flash_internimage import load_checkpoint

    path = tmp_path / "checkpoint.pth"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(OrinportError, match="checkpoint"):
        load_checkpoint(path)
    with pytest.raises(OrinportError, match="checkpoint"):
        load_checkpoint(tmp_path)


def test_the_checkpoint_decides_the_number_of_classes(torch, tmp_path):
    from orinport.dcnv4.flash_internimage import flash_internimage

    path = tmp_path / "checkpoint.pth"
    torch.save(flash_internimage("t", classes=7).state_dict(), path)
    assert flash_internimage("t", checkpoint=path).head.out_features == 7


@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize("remove_center", [False, True])
def test_what_a_module_computes(torch, stride, remove_center):
    """Projections in NumPy around the reference; the output has the operator's size, also for stride 2."""
    from orinport.dcnv4 import DCNv4
    from orinport.dcnv4.flash_internimage import randomize

    module = DCNv4(32, group=2, stride=stride, offset_scale=0.5, remove_center=remove_center)
    randomize(module, 5)
    value, vectors, output = module.value_proj, module.offset_mask, module.output_proj
    pixels = np.random.default_rng(0).standard_normal((2, 7, 6, 32))

    def linear(layer, x):
        return x @ layer.weight.detach().double().numpy().T + layer.bias.detach().double().numpy()

    sampled = reference(
        linear(value, pixels),
        linear(vectors, pixels)[:, ::stride, ::stride],
        group=2,
        group_channels=16,
        stride=(stride, stride),
        offset_scale=0.5,
        remove_center=remove_center,
    )
    tokens = sampled.shape[1] * sampled.shape[2]
    assert tokens == (42 if stride == 1 else 12)
    got = module(torch.tensor(pixels, dtype=torch.float32).flatten(1, 2), (7, 6))
    np.testing.assert_allclose(got.detach().numpy(), linear(output, sampled).reshape(2, tokens, 32), atol=2e-5)


def test_padding_that_changes_the_size(torch):
    """Without padding the output is two pixels smaller, and its offsets come from the inner pixels."""
    from orinport.dcnv4 import DCNv4
    from orinport.dcnv4.flash_internimage import randomize

    module = DCNv4(32, group=2, pad=0)
    randomize(module, 6)
    pixels = torch.randn(1, 6, 7, 32, generator=torch.Generator().manual_seed(0))
    whole = DCNv4(32, group=2, pad=1)
    whole.load_state_dict(module.state_dict())
    torch.testing.assert_close(module(pixels), whole(pixels)[:, 1:-1, 1:-1])
    with pytest.raises(OrinportError, match="have no input pixel under them"):
        DCNv4(32, group=2, pad=2)(pixels)


def test_tokens_need_a_shape(torch):
    from orinport.dcnv4 import DCNv4

    module = DCNv4(32, group=2)
    assert module(torch.zeros(1, 9, 32)).shape == (1, 9, 32)
    assert module(torch.zeros(1, 3, 3, 32)).shape == (1, 3, 3, 32)
    with pytest.raises(OrinportError, match="12 tokens are not 3x3 pixels"):
        module(torch.zeros(1, 12, 32))
    with pytest.raises(OrinportError, match=r"\(N, L, C\) or \(N, H, W, C\)"):
        module(torch.zeros(9, 32))
    with pytest.raises(OrinportError, match="do not divide into 3 groups"):
        DCNv4(32, group=3)


def test_a_fresh_module_gives_its_bias(torch):
    from orinport.dcnv4 import DCNv4

    module = DCNv4(32, group=2)
    torch.nn.init.ones_(module.output_proj.bias)
    assert (module(torch.randn(1, 9, 32)) == 1).all()


def test_options_change_the_module(torch):
    from orinport.dcnv4 import DCNv4
    from orinport.dcnv4.flash_internimage import randomize

    pixels = torch.randn(1, 4, 5, 32, generator=torch.Generator().manual_seed(0))
    gated = DCNv4(32, group=2, center_feature_scale=True)
    randomize(gated, 1)
    with torch.no_grad():
        gated.center_feature_scale_proj_weight.zero_()
        gated.center_feature_scale_proj_bias.fill_(100)
        torch.testing.assert_close(gated(pixels), gated.output_proj(gated.value_proj(pixels)))
    bare = DCNv4(32, group=2, without_pointwise=True, dw_kernel_size=3)
    assert set(bare.state_dict()) == {f"offset_mask{s}.{p}" for s in ("", "_dw") for p in ("weight", "bias")}
    assert bare(pixels).shape == pixels.shape
    assert DCNv4(32, group=2, output_bias=False).output_proj.bias is None


@pytest.mark.parametrize("last", [2, 4])
def test_attention_module(torch, last):
    """With zero offsets every point reads the reference point, so weights do not matter."""
    from orinport.dcnv4 import FlashDeformAttn
    from orinport.dcnv4.flash_internimage import randomize

    module = FlashDeformAttn(d_model=32, n_levels=2, n_heads=2, n_points=4)
    randomize(module, 2)
    with torch.no_grad():
        module.sampling_offsets.weight.zero_()
        module.sampling_offsets.bias.zero_()
        rows = torch.randn(1, 20, 32)
        rows[:, 16:] = rows[:, 5:6]
        points = torch.full((1, 1, 2, last), 1.5 / 4)
        got = module(torch.randn(1, 1, 32), points, rows, torch.tensor([[4, 4], [2, 2]]), torch.tensor([0, 16]))
        value = module.value_proj(rows)
        weights = module.attention_weights
        assert weights.out_features == 16
        level0, level1 = value[:, 5], value[:, 16]
        torch.testing.assert_close(level0, level1)
    inside = 0.75 * 0.75 + 2 * 0.75 * 0.25 + 0.25 * 0.25
    assert inside == 1
    torch.testing.assert_close(got[:, 0], module.output_proj(level0))


def test_attention_padding_mask_and_initial_pattern(torch):
    from orinport.dcnv4 import FlashDeformAttn

    module = FlashDeformAttn(d_model=32, n_levels=2, n_heads=4, n_points=2)
    bias = module.sampling_offsets.bias.detach().reshape(4, 2, 2, 2)
    torch.testing.assert_close(bias[1, :, 1], torch.tensor([[0.0, 2.0]] * 2), atol=1e-6, rtol=0)
    rows, mask = torch.randn(1, 20, 32), torch.ones(1, 20, dtype=torch.bool)
    points = torch.rand(1, 3, 2, 2)
    shapes = torch.tensor([[4, 4], [2, 2]]), torch.tensor([0, 16])
    got = module(torch.randn(1, 3, 32), points, rows, *shapes, mask)
    torch.testing.assert_close(got, module.output_proj.bias.expand(1, 3, 32))
    with pytest.raises(OrinportError, match="2 or 4 numbers, not 3"):
        module(torch.randn(1, 3, 32), torch.rand(1, 3, 2, 3), rows, *shapes)


def test_drop_path_acts_in_training_only(torch):
    from orinport.dcnv4.flash_internimage import _DropPath

    x = torch.ones(1000, 2)
    layer = _DropPath(0.25)
    kept = layer(x)
    assert set(kept.flatten().tolist()) == {0.0, float(torch.tensor(1.0) / 0.75)}
    assert (kept[:, 0] == kept[:, 1]).all()
    assert kept.mean() == pytest.approx(1, abs=0.1)
    assert torch.equal(layer.eval()(x), x)


@pytest.mark.slow
def test_training_step(torch):
    """The loss of the smallest model falls on one batch."""
    from orinport.dcnv4.flash_internimage import VARIANTS, FlashInternImage, randomize

    model = FlashInternImage(VARIANTS["flash-internimage-t"], classes=4)
    randomize(model, 0)
    images = torch.randn(4, 3, 64, 64, generator=torch.Generator().manual_seed(1))
    labels = torch.arange(4)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    losses = []
    for _ in range(15):
        loss = torch.nn.functional.cross_entropy(model(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 0.5 * losses[0]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda torch, w: torch.tensor(1.0), "head.weight has shape"),
        (lambda torch, w: w[:0], "head.weight has shape"),
        (lambda torch, w: w.to_sparse(), "not dense"),
        (lambda torch, w: w.to("meta"), "not dense"),
        (lambda torch, w: w[:1].expand(4_000_000_000, -1), "more than the file holds"),
        (lambda torch, w: w.to(torch.complex64), "not real numbers"),
        (lambda torch, w: w * float("nan"), "not finite"),
    ],
)
def test_weights_that_can_be_none(torch, tmp_path, change, words):
    from orinport.dcnv4.flash_internimage import flash_internimage

    state = flash_internimage("t", classes=3).state_dict()
    state["head.weight"] = change(torch, state["head.weight"])
    torch.save(state, tmp_path / "c.pth")
    with pytest.raises(OrinportError, match=words):
        flash_internimage("t", checkpoint=tmp_path / "c.pth")


@pytest.mark.parametrize(
    "change",
    [
        *({"group": 0}, {"channels": 0}, {"channels": "64"}, {"dw_kernel_size": 2}, {"dw_kernel_size": 0}),
        *({"offset_scale": "a"}, {"offset_scale": 10**400}, {"kernel_size": (3, 3)}, {"pad": 2**32}),
        {"dilation": 2**32},
    ],
)
def test_modules_that_cannot_be(torch, change):
    from orinport.dcnv4 import DCNv4

    with pytest.raises(OrinportError, match="DCNv4: "):
        DCNv4(**change)


@pytest.mark.parametrize("change", [{"n_heads": 0}, {"n_heads": -8}, {"d_model": 0}, {"n_levels": 0}, {"n_points": 0}])
def test_attention_that_cannot_be(torch, change):
    from orinport.dcnv4 import FlashDeformAttn

    with pytest.raises(OrinportError, match="FlashDeformAttn: "):
        FlashDeformAttn(**change)


def test_inputs_that_do_not_fit_a_module(torch):
    from orinport.dcnv4 import DCNv4, FlashDeformAttn

    module, tokens = DCNv4(32, group=4), torch.zeros(2, 64, 32)
    for shape in ((-8, -8), (4, 4, 4), (5, 5)):
        with pytest.raises(OrinportError, match=r"shape"):
            module(tokens, shape)
    with pytest.raises(OrinportError, match="has 16 channels, not 32"):
        module(tokens[..., :16])
    attention, levels, starts = FlashDeformAttn(32, 1, 4, 2), torch.tensor([[8, 8]]), torch.tensor([0])
    with pytest.raises(OrinportError, match="reference points must be"):
        attention(tokens, torch.zeros(2, 64, 2), tokens, levels, starts)


@pytest.mark.parametrize("layout", ["archive", "stream"])
def test_damaged_checkpoints_are_refused_in_one_sentence(torch, tmp_path, layout):
    import random

    from orinport.dcnv4.flash_internimage import load_checkpoint

    path, rng = tmp_path / "weights.pth", random.Random(5)
    state = {"a": torch.randn(3, 4), "b": torch.arange(5)}
    torch.save(state, path, _use_new_zipfile_serialization=layout == "archive")
    whole, refused = path.read_bytes(), 0
    for _ in range(400):
        damaged = bytearray(whole)
        for _ in range(rng.randrange(1, 6)):
            damaged[rng.randrange(min(len(damaged), 600))] = rng.randrange(256)
        path.write_bytes(damaged[: rng.choice([len(damaged), rng.randrange(1, len(damaged))])])
        try:
            load_checkpoint(path)
        except OrinportError:
            refused += 1
    assert refused > 200


def test_seeds_and_classes_that_cannot_be(torch):
    from orinport.dcnv4.flash_internimage import flash_internimage, randomize

    with pytest.raises(OrinportError, match="at least one class"):
        flash_internimage("t", classes=0)
    with pytest.raises(OrinportError, match="64 bits"):
        randomize(torch.nn.Linear(2, 2), 2**70)
