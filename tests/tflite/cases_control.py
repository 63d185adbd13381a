"""Cases of control flow, detection, transforms, and chains of quantised operators."""

from typing import Any

import numpy as np
from flatbuffers import flexbuffers

from tests.tflite.build import ModelBuilder, T
from tests.tflite.cases import F32, Recipe, Recipes, excluded, f, it, k, recipe

Built = tuple[ModelBuilder, None]


def recipes() -> Recipes:
    yield Recipe(name="if", operator="IF", build=_branches(constant=False))
    yield Recipe(name="if_constant", operator="IF", build=_branches(constant=True))
    yield Recipe(name="while", operator="WHILE", build=_loop)
    yield Recipe(name="composite", operator="STABLEHLO_COMPOSITE", build=_composite)
    yield Recipe(name="call_once", operator="CALL_ONCE", excluded="it sets up resources")
    # No input or output is complex: the transform is seen through these.
    for kind in ("COMPLEX_ABS", "REAL", "IMAG"):
        yield Recipe(name=kind.lower(), operator=kind, build=_spectrum(kind, F32))
    yield Recipe(name="rfft2d", operator="RFFT2D", build=_spectrum("COMPLEX_ABS", F32))
    yield Recipe(name="reshape_complex", operator="RESHAPE", build=_spectrum_of_frames)
    yield from _detection()
    yield excluded("CALL", "LiteRT has no kernel of it")
    yield excluded("CONCAT_EMBEDDINGS", "LiteRT has no kernel of it")
    yield excluded("DELEGATE", "stands for what a delegate has taken")
    yield excluded("CUSTOM", "an operator of the user")
    yield excluded("PLACEHOLDER_FOR_GREATER_OP_CODES", "no operator")


def _branches(*, constant: bool):
    def build(r: np.random.Generator) -> Built:
        made = ModelBuilder()
        main, then, otherwise = made.graph(), made.graph("then"), made.graph("otherwise")
        x = T(data=r.uniform(-2, 2, (3, 4)).astype(np.float32))
        condition = main.add(T(dtype="bool", data=np.array([True]), is_constant=constant))
        value = main.add(x)
        for graph, kind in ((then, "ABS"), (otherwise, "NEG")):
            inner = graph.add(T(shape=(3, 4)))
            graph.inputs = [inner]
            graph.outputs = graph.op(kind, [inner], [T(shape=(3, 4))])
        places = {"thenSubgraphIndex": 1, "elseSubgraphIndex": 2}
        main.outputs = main.op("IF", [condition, value], [T(shape=(3, 4))], "IfOptions", places)
        return made, None

    return build


def _composite(r: np.random.Generator) -> Built:
    """As exporters write a norm or an attention: a name, and the graph that computes it."""
    made = ModelBuilder()
    main, norm = made.graph(), made.graph("norm")
    x = main.add(T(data=r.uniform(-2, 2, (3, 4)).astype(np.float32)))
    y = main.add(T(data=r.uniform(1, 2, (3, 4)).astype(np.float32)))
    norm.inputs = [norm.add(T(shape=(3, 4))), norm.add(T(shape=(3, 4)))]
    twice = norm.op("MUL", [norm.inputs[0]] * 2, [T(shape=(3, 4))], "MulOptions")
    norm.outputs = norm.op("DIV", [*twice, norm.inputs[1]], [T(shape=(3, 4))], "DivOptions")
    values: dict[str, Any] = {"name": "odml.norm", "decompositionSubgraphIndex": 1}
    values["compositeAttributes"] = list(flexbuffers.Dumps({"axis": 1}))
    for _ in range(2):
        options = "StableHLOCompositeOptions"
        (x,) = main.op("STABLEHLO_COMPOSITE", [x, y], [T(shape=(3, 4))], options, values)
    main.outputs = [x]
    return made, None


def _loop(r: np.random.Generator) -> Built:
    """Doubles four times: the count is in the graph."""
    made = ModelBuilder()
    main, condition, body = made.graph(), made.graph("condition"), made.graph("body")
    count = main.add(T(dtype="int32", data=np.array(0, np.int32), is_constant=True))
    x = main.add(T(data=r.uniform(-2, 2, (3, 4)).astype(np.float32)))
    for graph in (condition, body):
        graph.inputs = [graph.add(T(dtype="int32")), graph.add(T(shape=(3, 4)))]
    limit = condition.add(T(dtype="int32", data=np.array(4, np.int32), is_constant=True))
    condition.outputs = condition.op("LESS", [condition.inputs[0], limit], [T(dtype="bool")])
    step = body.add(T(dtype="int32", data=np.array(1, np.int32), is_constant=True))
    next_count = body.op("ADD", [body.inputs[0], step], [T(dtype="int32")], "AddOptions")
    twice = body.op("ADD", [body.inputs[1]] * 2, [T(shape=(3, 4))], "AddOptions")
    body.outputs = [*next_count, *twice]
    places = {"condSubgraphIndex": 1, "bodySubgraphIndex": 2}
    results = [T(dtype="int32"), T(shape=(3, 4))]
    main.outputs = main.op("WHILE", [count, x], results, "WhileOptions", places)
    return made, None


def _spectrum(kind: str, out: T):
    def build(r: np.random.Generator) -> Built:
        made = ModelBuilder()
        graph = made.graph()
        x = graph.add(f(2, 4, 8)(r))
        size = graph.add(k([4, 8])(r))
        spectrum = graph.op("RFFT2D", [x, size], [T(dtype="complex64")], "Rfft2dOptions")
        graph.outputs = graph.op(kind, spectrum, [out])
        return made, None

    return build


def _spectrum_of_frames(r: np.random.Generator) -> Built:
    """The sizes of short spectra, as TensorFlow writes them: an axis of one is taken out."""
    made = ModelBuilder()
    graph = made.graph()
    x = graph.add(f(3, 1, 16)(r))
    size, shape = graph.add(k([1, 16])(r)), graph.add(k([3, 9])(r))
    spectrum = graph.op("RFFT2D", [x, size], [T(dtype="complex64")], "Rfft2dOptions")
    flat = graph.op("RESHAPE", [*spectrum, shape], [T(dtype="complex64")], "ReshapeOptions")
    graph.outputs = graph.op("COMPLEX_ABS", flat, [F32])
    return made, None


def _boxes(r: np.random.Generator, count: int) -> np.ndarray:
    corner = r.uniform(0, 0.6, (count, 2))
    size = r.uniform(0.1, 0.4, (count, 2))
    return np.concatenate([corner, corner + size], 1).astype(np.float32)


def _detection() -> Recipes:
    def boxes(r: np.random.Generator) -> T:
        return T(data=_boxes(r, 12))

    def scores(r: np.random.Generator) -> T:
        return T(data=r.permutation(np.linspace(0.05, 0.95, 12)).astype(np.float32))

    inputs = [boxes, scores, k(6), k(0.4, "float32"), k(0.2, "float32")]
    yield recipe("NON_MAX_SUPPRESSION_V4", "", inputs, [it(), it()])
    yield recipe("NON_MAX_SUPPRESSION_V5", "", [*inputs, k(0.0, "float32")], [it(), F32, it()])
    yield recipe("NON_MAX_SUPPRESSION_V5", "soft", [*inputs, k(0.5, "float32")], [it(), F32, it()])
    for name, regular in (
        ("detection_postprocess", False),
        ("detection_postprocess_regular", True),
    ):
        yield Recipe(name=name, operator=_POSTPROCESS, build=_postprocess(regular=regular))


_POSTPROCESS = "TFLite_Detection_PostProcess"
_COUNTS = {
    "max_detections": 5,
    "max_classes_per_detection": 1,
    "detections_per_class": 3,
    "num_classes": 3,
}
_NUMBERS = {
    "nms_score_threshold": 0.1,
    "nms_iou_threshold": 0.5,
    "y_scale": 10.0,
    "x_scale": 10.0,
    "h_scale": 5.0,
    "w_scale": 5.0,
}


def _postprocess(*, regular: bool):
    def build(r: np.random.Generator) -> Built:
        writer = flexbuffers.Builder()
        with writer.Map():
            for key, number in _COUNTS.items():
                writer.Int(key, number)
            writer.Bool("use_regular_nms", regular)
            for key, value in _NUMBERS.items():
                writer.Float(key, value)
        count = 20
        anchors = [r.uniform(0.2, 0.8, (count, 2)), r.uniform(0.1, 0.5, (count, 2))]
        made = ModelBuilder()
        graph = made.graph()
        scores = r.permutation(np.linspace(0.01, 0.99, count * 4)).reshape(1, count, 4)
        inputs = [
            graph.add(T(data=r.uniform(-1, 1, (1, count, 4)).astype(np.float32))),
            graph.add(T(data=scores.astype(np.float32))),
            graph.add(T(data=np.concatenate(anchors, 1).astype(np.float32), is_constant=True)),
        ]
        custom = bytes(writer.Finish())
        graph.outputs = graph.op(_POSTPROCESS, inputs, [F32] * 4, custom=custom)
        return made, None

    return build
