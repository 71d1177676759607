"""Shapes of the tensors that models of transformers are called with, by the names of forward()'s arguments.

An argument's name says what it is (``pixel_values``, ``input_features``); the sizes come from the config. Where models
lay the same thing out in several ways, each is named, and the first that the model runs with is taken. What a config
does not say is a number here: one second of sound, an image of 224 x 224. Whoever reads the analysis is told the shape.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from lmp.errors import TraceFailed

ENCODER_LENGTH = "encoder_seq_len"
"""Tokens that the encoder reads; ``seq_len`` is the decoder's."""

IMAGE = 224
"""Pixels a side where the config names no image size."""

FRAMES = 8
"""Pictures of a video where the config names no number of them."""

SECOND = 16_000
"""Samples of a second of sound where the config names no rate."""

LONG_SOUND = 153_600
"""The same of a recording that is cut into blocks: 2**11 * 75 samples."""

SPECTRA = (128, 1600, 1024)
"""Spectra that a recording is given as where the config names no number of them: numbers that strides divide."""

BINS = 128
"""Bins of a spectrum where the config names no number of them."""

Shape = tuple[Any, ...]

Layout = Callable[["Sizes"], Iterator[Shape]]

HINTS = {
    "image": ("vision", "image", "backbone", "encoder", "detector"),
    "sound": ("audio", "speech", "sound", "acoustic", "encoder"),
    "time": (),
}
"""How the parts of a config are called that say the sizes of each kind of thing."""


@dataclass(frozen=True)
class Sizes:
    """Sizes of one call: the run's variables first, then what the config, or a part of it, says."""

    values: Mapping[str, Any]
    config: Any
    length: str = "seq_len"
    """The variable that says how many tokens ``input_ids`` has."""

    @property
    def batch(self) -> Any:
        return self.values["batch_size"]

    @property
    def tokens(self) -> Any:
        return self.values["seq_len"]

    def get(self, kind: str, *names: str) -> Any:
        """The first of these sizes that the config, or a part of it for this ``kind`` of input, has; or None."""
        for index, part in enumerate(_parts(self.config, kind)):
            for name in names:
                found = _attribute(part, name)
                if isinstance(found, (int, list, tuple)) and not isinstance(found, bool) and found:
                    # The variables are the integers of the part that the text, or the whole, is made from.
                    own = index == 0 and type(found) is int
                    return self.values.get(name, found) if own else found
        return None


def _attribute(part: Any, name: str) -> Any:
    return part.get(name) if isinstance(part, dict) else getattr(part, name, None)


def _is_one(size: Any) -> bool:
    """Whether a size is there, and is no list of several."""
    return size is not None and not isinstance(size, (list, tuple))


def _parts(config: Any, kind: str, depth: int = 3) -> Iterator[Any]:
    """The config, then the parts named for this kind of input, then the others; and so on inside of them."""
    yield config
    inside = {n: v for n, v in vars(config).items() if hasattr(v, "model_type") and hasattr(v, "to_dict")}
    named = sorted(inside, key=lambda name: not name.startswith(HINTS[kind]))
    if depth:
        for name in named:
            yield from _parts(inside[name], kind, depth - 1)


def _image(s: Sizes) -> tuple[Any, Any, Any]:
    """Channels, height and width."""
    channels = s.get("image", "num_channels", "in_channels", "in_chans")
    size = s.get("image", "image_size", "crop_size", "img_size", "anchor_image_size")
    height, width = size if isinstance(size, (list, tuple)) and len(size) == 2 else (size, size)
    if isinstance(height, (list, tuple)) or height is None:
        height = width = IMAGE
    return 3 if channels is None or isinstance(channels, (list, tuple)) else channels, height, width


def _tokens(s: Sizes) -> Iterator[Shape]:
    """One sequence each; of sound that is written in several codes at once, one a code book."""
    yield s.batch, s.values[s.length]
    books = s.get("sound", "num_codebooks")
    if _is_one(books):
        yield s.batch * books, s.values[s.length]
        # Beside one another, with or without a code of the text.
        yield s.batch, s.values[s.length], books + 1
        yield s.batch, s.values[s.length], books


def _decoder_tokens(s: Sizes) -> Iterator[Shape]:
    yield s.batch, s.tokens
    channels = s.get("sound", "num_channels")
    if _is_one(channels):
        yield s.batch, s.tokens, channels


def _pixels(s: Sizes) -> Iterator[Shape]:
    """One picture a sequence; several of them where the config has a number of frames, or the model wants them."""
    channels, height, width = _image(s)
    frames = s.get("image", "num_frames", "frames_per_clip")
    if _is_one(frames):
        yield s.batch, frames, channels, height, width
    yield s.batch, channels, height, width
    yield s.batch, 1, channels, height, width
    yield s.batch, 2, channels, height, width
    patch = s.get("image", "patch_size")
    if _is_one(patch):
        # Pictures that are cut into patches already.
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
    """Spectra of so many bins, and how many: two to a position of the encoder where it has positions."""
    bins = ("num_mel_bins", "input_feat_per_channel", "feature_projection_input_dim", "input_feat_size", "input_dim")
    mels = s.get("sound", *bins) or BINS
    positions = s.get("sound", "max_source_positions")
    if positions is not None:
        # Two spectra make one position, as the convolution of stride 2 before the encoder has it.
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
    """What a model asks of a picture."""
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
    """A series: the context, and before it what the lags reach back to."""
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
    """What is told of each point in time: by default one number, or nothing."""
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
    """What an encoder made of a picture."""
    width = s.get("image", "encoder_hidden_size")
    if width is not None:
        yield s.batch, GRID * GRID, width


def _patches(s: Sizes) -> Iterator[Shape]:
    """Pictures of GRID x GRID patches, one after the other: flat patches, or patches as small pictures."""
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
    """Patches a side that can be pooled in groups of as many as the config says."""
    group = s.get("image", "pooling_kernel_size")
    return (GRID + group - 1) // group * group if _is_one(group) else GRID


def _steps(*names: str) -> Layout:
    """What is told of each step of an episode: as many numbers as the config says under a name, else one."""

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
"""Learned queries where the config names no number of them."""

GRID = 8
"""Patches a side of the pictures that a tower takes as a row of patches."""

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
"""Arguments that are numbers -> their layouts."""

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
"""Arguments that are ids or whole coordinates."""

MASKS: dict[str, Layout] = {
    "attention_mask": _tokens,
    "pixel_mask": _picture_mask,
    "pixel_attention_mask": _patch_mask,
    "input_features_mask": _spectra_mask,
    "audio_mel_mask": _spectra_mask,
    "past_observed_mask": _past,
    "past_values_padding": _past,
}
"""Arguments that say what counts: all of it."""

VALUES: dict[str, tuple[Layout, Callable[[int], list[Any]]]] = {
    "spatial_shapes": (_heights, lambda batch: [[GRID, GRID]] * batch),
    "grid_thw": (_grid, lambda batch: [[1, GRID, GRID]] * batch),
    "cu_seqlens": (_bounds, lambda batch: [GRID * GRID * i for i in range(batch + 1)]),
    "cu_window_seqlens": (_bounds, lambda batch: [GRID * GRID * i for i in range(batch + 1)]),
}
"""Arguments whose values the code reads, to cut a row of patches into pictures -> their layout, and their values."""

KNOWN = {**FLOATING, **INTEGER, **MASKS, **{name: layout for name, (layout, _) in VALUES.items()}}


def tensor(name: str, layout: int, sizes: Sizes, dtype: torch.dtype, mask: torch.dtype = torch.int64) -> torch.Tensor:
    """The argument ``name`` in its ``layout``-th layout, without data. Raises TraceFailed where there is none such.

    What says what counts is of the dtype ``mask``.
    """
    if name in VALUES:
        # On the CPU, where values can be: it is read before anything is computed.
        kind = torch.int32 if name.startswith("cu_") else torch.int64
        return torch.tensor(VALUES[name][1](int(sizes.batch)), dtype=kind, device="cpu")
    kind = dtype if name in FLOATING else mask if name in MASKS else torch.int64
    return torch.empty(shape_of(name, layout, sizes), dtype=kind, device="meta")


def shape_of(name: str, layout: int, sizes: Sizes) -> Shape:
    """The shape of an argument in its ``layout``-th layout. Raises TraceFailed where there is none such."""
    if name not in KNOWN:
        raise TraceFailed(f"lmp has no rule for the shape of {name}, which this model is called with.")
    shapes = list(KNOWN[name](sizes))
    if layout >= len(shapes):
        raise TraceFailed(f"the config does not say the sizes from which the shape of {name} follows.")
    return shapes[layout]


def layouts(name: str, sizes: Sizes) -> int:
    """How many layouts there are for an argument with this config."""
    return len(list(KNOWN[name](sizes))) if name in KNOWN else 0
