"""Shapes of input tensors of transformers' models, by the names of forward()'s arguments.

An argument's name states its content (``pixel_values``, ``input_features``), and the config gives its sizes. If models
use several layouts, each is listed, and the first that runs is used. A size that no config gives is a constant here:
one second of sound, an image of 224 x 224. The analysis states the shape.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from lmp.errors import TraceFailed

ENCODER_LENGTH = "encoder_seq_len"
"""Number of the encoder's tokens. ``seq_len`` is the decoder's."""

IMAGE = 224
"""Pixels a side if the config has no image size."""

FRAMES = 8
"""Frames of a video if the config has no number of them."""

SECOND = 16_000
"""Samples of a second of sound if the config has no rate."""

LONG_SOUND = 153_600
"""Samples of a recording that is cut into blocks: 2**11 * 75."""

SPECTRA = (128, 1600, 1024)
"""Numbers of spectra in a recording if the config has none. Strides divide them."""

BINS = 128
"""Bins of a spectrum if the config has no number of them."""

Shape = tuple[Any, ...]

Layout = Callable[["Sizes"], Iterator[Shape]]

HINTS = {
    "image": ("vision", "image", "backbone", "encoder", "detector"),
    "sound": ("audio", "speech", "sound", "acoustic", "encoder"),
    "time": (),
}
"""Prefixes of the config sections that contain the sizes of each kind of input."""


@dataclass(frozen=True)
class Sizes:
    """Sizes of one call: the run's variables, then the values of the config or one of its sections."""

    values: Mapping[str, Any]
    config: Any
    length: str = "seq_len"
    """The variable for the number of tokens in ``input_ids``."""

    @property
    def batch(self) -> Any:
        return self.values["batch_size"]

    @property
    def tokens(self) -> Any:
        return self.values["seq_len"]

    def get(self, kind: str, *names: str) -> Any:
        """The first of these sizes in the config, or in a section for this ``kind`` of input; else None."""
        for index, part in enumerate(_parts(self.config, kind)):
            for name in names:
                found = _attribute(part, name)
                if isinstance(found, (int, list, tuple)) and not isinstance(found, bool) and found:
                    # The variables are the integers of the text section, or of the whole config.
                    own = index == 0 and type(found) is int
                    return self.values.get(name, found) if own else found
        return None


def _attribute(part: Any, name: str) -> Any:
    return part.get(name) if isinstance(part, dict) else getattr(part, name, None)


def _is_one(size: Any) -> bool:
    """True if a size exists and is no list of several."""
    return size is not None and not isinstance(size, (list, tuple))


def _parts(config: Any, kind: str, depth: int = 3) -> Iterator[Any]:
    """The config, the sections for this kind of input, then the others; each followed by its own sections."""
    yield config
    inside = {n: v for n, v in vars(config).items() if hasattr(v, "model_type") and hasattr(v, "to_dict")}
    named = sorted(inside, key=lambda name: not name.startswith(HINTS[kind]))
    if depth:
        for name in named:
            yield from _parts(inside[name], kind, depth - 1)


def _image(s: Sizes) -> tuple[Any, Any, Any]:
    """Channels, height and width of an image."""
    channels = s.get("image", "num_channels", "in_channels", "in_chans")
    size = s.get("image", "image_size", "crop_size", "img_size", "anchor_image_size")
    height, width = size if isinstance(size, (list, tuple)) and len(size) == 2 else (size, size)
    if isinstance(height, (list, tuple)) or height is None:
        height = width = IMAGE
    return 3 if channels is None or isinstance(channels, (list, tuple)) else channels, height, width


def _tokens(s: Sizes) -> Iterator[Shape]:
    """One sequence each; for sound in several parallel codes, one sequence a code book."""
    yield s.batch, s.values[s.length]
    books = s.get("sound", "num_codebooks")
    if _is_one(books):
        yield s.batch * books, s.values[s.length]
        # Side by side, with or without a code of the text.
        yield s.batch, s.values[s.length], books + 1
        yield s.batch, s.values[s.length], books


def _decoder_tokens(s: Sizes) -> Iterator[Shape]:
    yield s.batch, s.tokens
    channels = s.get("sound", "num_channels")
    if _is_one(channels):
        yield s.batch, s.tokens, channels


def _pixels(s: Sizes) -> Iterator[Shape]:
    """One image a sequence; several if the config has a number of frames, or the model takes them."""
    channels, height, width = _image(s)
    frames = s.get("image", "num_frames", "frames_per_clip")
    if _is_one(frames):
        yield s.batch, frames, channels, height, width
    yield s.batch, channels, height, width
    yield s.batch, 1, channels, height, width
    yield s.batch, 2, channels, height, width
    patch = s.get("image", "patch_size")
    if _is_one(patch):
        # Images that are already cut into patches.
        yield s.batch, _side(s) ** 2, channels * patch * patch
        yield from _patches(s)


def _video(s: Sizes) -> Iterator[Shape]:
    channels, height, width = _image(s)
    frames = s.get("image", "num_frames", "frames_per_clip")
    yield s.batch, FRAMES if frames is None else frames, channels, height, width


def _picture_mask(s: Sizes) -> Iterator[Shape]:
    _, height, width = _image(s)
    yield s.batch, height, width


def _sound(s: Sizes) -> Iterator[Shape]:
    """A second of sound: samples, samples of one channel, or spectra."""
    rate = s.get("sound", "sampling_rate", "sample_rate", "input_sampling_rate")
    samples = SECOND if rate is None or isinstance(rate, (list, tuple)) else rate
    mels, spectra = s.get("sound", "num_mel_bins"), s.get("sound", "max_length", "max_source_positions")
    if mels is not None and spectra is not None:
        yield s.batch, spectra, mels
    yield s.batch, samples
    yield s.batch, 1, samples
    if mels is not None:
        yield s.batch, SPECTRA[0], mels
    yield s.batch, LONG_SOUND
    yield s.batch, 1, LONG_SOUND


def _recorded(s: Sizes) -> Iterator[tuple[Shape, Any]]:
    """Shapes of recordings as spectra, with the number of spectra: two a position if the encoder has positions."""
    bins = ("num_mel_bins", "input_feat_per_channel", "feature_projection_input_dim", "input_feat_size", "input_dim")
    mels = s.get("sound", *bins) or BINS
    positions = s.get("sound", "max_source_positions")
    if positions is not None:
        # The convolution of stride 2 before the encoder merges two spectra into one position.
        yield (s.batch, mels, 2 * positions), 2 * positions
    for spectra in SPECTRA:
        yield (s.batch, spectra, mels), spectra
        yield (s.batch, mels, spectra), spectra
        yield (s.batch, 1, spectra, mels), spectra


def _spectra(s: Sizes) -> Iterator[Shape]:
    for shape, _ in _recorded(s):
        yield shape


def _spectra_mask(s: Sizes) -> Iterator[Shape]:
    for _, spectra in _recorded(s):
        yield s.batch, spectra


def _boxes(s: Sizes) -> Iterator[Shape]:
    yield s.batch, s.values[s.length], 4


def _embeddings(s: Sizes) -> Iterator[Shape]:
    width = s.get("image", "hidden_size", "d_model")
    if width is not None:
        yield s.batch, s.tokens, width


def _queries(s: Sizes) -> Iterator[Shape]:
    """Learned queries of a model to an image."""
    width = s.get("image", "hidden_size", "d_model")
    count = s.get("image", "num_query_tokens", "num_queries")
    if width is not None:
        yield s.batch, QUERIES if count is None else count, width


def _latents(s: Sizes) -> Iterator[Shape]:
    """Frames of sound, each as wide as the model."""
    width = s.get("sound", "hidden_size", "d_model")
    if width is not None:
        yield s.batch, width, SPECTRA[0]
        yield s.batch, SPECTRA[0], width


def _patch_mask(s: Sizes) -> Iterator[Shape]:
    yield s.batch, GRID * GRID


def _heights(s: Sizes) -> Iterator[Shape]:
    yield s.batch, 2


def _past(s: Sizes) -> Iterator[Shape]:
    """A time series: the context, preceded by the steps that the lags reach."""
    length, lags = s.get("time", "context_length"), s.get("time", "lags_sequence")
    channels = s.get("time", "num_input_channels")
    if length is None:
        return
    if lags is not None:
        yield s.batch, length + max(lags)
    if channels is not None:
        yield s.batch, length, channels
    yield s.batch, length


def _past_features(s: Sizes) -> Iterator[Shape]:
    for features in _features(s):
        for shape in _past(s):
            yield *shape[:2], features


def _features(s: Sizes) -> Iterator[int]:
    """Numbers of time features a step: the config's, else 1 and then 0."""
    told = s.get("time", "num_time_features")
    yield from (1, 0) if told is None else (told,)


def _future(s: Sizes) -> Iterator[Shape]:
    length = s.get("time", "prediction_length")
    if length is not None:
        yield s.batch, length


def _future_features(s: Sizes) -> Iterator[Shape]:
    for features in _features(s):
        for batch, length in _future(s):
            yield batch, length, features


def _states(s: Sizes) -> Iterator[Shape]:
    """The encoder's output for an image."""
    width = s.get("image", "encoder_hidden_size")
    if width is not None:
        yield s.batch, GRID * GRID, width


def _patches(s: Sizes) -> Iterator[Shape]:
    """Images of GRID x GRID patches, one after the other: flat patches, or patches as small images."""
    channels = s.get("image", "in_channels", "num_channels", "in_chans") or 3
    patch, frames = s.get("image", "patch_size"), s.get("image", "temporal_patch_size") or 1
    if _is_one(patch):
        yield s.batch * GRID * GRID, channels * frames * patch * patch
        yield s.batch * GRID * GRID, channels, patch, patch


def _grid(s: Sizes) -> Iterator[Shape]:
    yield s.batch, 3


def _bounds(s: Sizes) -> Iterator[Shape]:
    yield (s.batch + 1,)


def _places(s: Sizes) -> Iterator[Shape]:
    yield s.batch * GRID * GRID, 2


def _places_of_patches(s: Sizes) -> Iterator[Shape]:
    yield s.batch, _side(s) ** 2, 2


def _side(s: Sizes) -> Any:
    """Patches a side: GRID, rounded up to a multiple of the config's pooling group."""
    group = s.get("image", "pooling_kernel_size")
    return (GRID + group - 1) // group * group if _is_one(group) else GRID


def _steps(*names: str) -> Layout:
    """Layout of data for each step of an episode: as many numbers as a config field states, else one."""

    def layout(s: Sizes) -> Iterator[Shape]:
        yield s.batch, s.tokens, (s.get("time", *names) if names else None) or 1

    return layout


def _windows(s: Sizes) -> Iterator[Shape]:
    merged = s.get("image", "spatial_merge_size") or 2
    yield (s.batch * GRID * GRID // merged**2,)


def _taps(s: Sizes) -> Iterator[Shape]:
    yield s.batch * GRID * GRID, 4
    yield s.batch * GRID * GRID, 16


QUERIES = 32
"""Learned queries if the config has no number of them."""

GRID = 8
"""Patches a side of the images that a tower takes as a row of patches."""

FLOATING: dict[str, Layout] = {
    "pixel_values": _pixels,
    "pixel_values_videos": _video,
    "input_values": _sound,
    "input_features": _spectra,
    "prompt_pixel_values": _pixels,
    "inputs_embeds": _embeddings,
    "noise_embeds": _embeddings,
    "inputs": _embeddings,
    "query_embeds": _queries,
    "encoder_hidden_states": _states,
    "latents": _latents,
    "past_values": _past,
    "past_time_features": _past_features,
    "future_values": _future,
    "future_time_features": _future_features,
    "hidden_states": _patches,
    "interp_weights": _taps,
    "audio_mel": _spectra,
    "states": _steps("state_dim"),
    "actions": _steps("act_dim"),
    "returns_to_go": _steps(),
}
"""Floating-point argument -> its layouts."""

INTEGER: dict[str, Layout] = {
    "input_ids": _tokens,
    "decoder_input_ids": _decoder_tokens,
    "token_type_ids": _tokens,
    "bbox": _boxes,
    "qformer_input_ids": _tokens,
    "position_ids": _places,
    "window_index": _windows,
    "interp_indices": _taps,
    "pixel_position_ids": _places_of_patches,
    "timesteps": _tokens,
}
"""Argument with ids or integer coordinates -> its layouts."""

MASKS: dict[str, Layout] = {
    "attention_mask": _tokens,
    "pixel_mask": _picture_mask,
    "pixel_attention_mask": _patch_mask,
    "input_features_mask": _spectra_mask,
    "audio_mel_mask": _spectra_mask,
    "past_observed_mask": _past,
    "past_values_padding": _past,
}
"""Mask that marks all elements as valid -> its layouts."""

VALUES: dict[str, tuple[Layout, Callable[[int], list[Any]]]] = {
    "spatial_shapes": (_heights, lambda batch: [[GRID, GRID]] * batch),
    "grid_thw": (_grid, lambda batch: [[1, GRID, GRID]] * batch),
    "cu_seqlens": (_bounds, lambda batch: [GRID * GRID * i for i in range(batch + 1)]),
    "cu_window_seqlens": (_bounds, lambda batch: [GRID * GRID * i for i in range(batch + 1)]),
}
"""Argument whose values the code reads, to split a row of patches into images -> its layout and its values."""

KNOWN = {**FLOATING, **INTEGER, **MASKS, **{name: layout for name, (layout, _) in VALUES.items()}}


def tensor(name: str, layout: int, sizes: Sizes, dtype: torch.dtype, mask: torch.dtype = torch.int64) -> torch.Tensor:
    """The argument ``name`` in layout number ``layout`` (from 0), without data. Raises TraceFailed if there is none.

    Masks have the dtype ``mask``.
    """
    if name in VALUES:
        # On the CPU, where it has values: the code reads them before it computes.
        kind = torch.int32 if name.startswith("cu_") else torch.int64
        return torch.tensor(VALUES[name][1](int(sizes.batch)), dtype=kind, device="cpu")
    kind = dtype if name in FLOATING else mask if name in MASKS else torch.int64
    return torch.empty(shape_of(name, layout, sizes), dtype=kind, device="meta")


def shape_of(name: str, layout: int, sizes: Sizes) -> Shape:
    """The shape of an argument in layout number ``layout`` (from 0). Raises TraceFailed if there is none."""
    if name not in KNOWN:
        raise TraceFailed(f"lmp has no rule for the shape of {name}, which this model is called with.")
    shapes = list(KNOWN[name](sizes))
    if layout >= len(shapes):
        raise TraceFailed(f"the config does not say the sizes from which the shape of {name} follows.")
    return shapes[layout]


def layouts(name: str, sizes: Sizes) -> int:
    """Number of layouts of an argument with this config."""
    return len(list(KNOWN[name](sizes))) if name in KNOWN else 0
