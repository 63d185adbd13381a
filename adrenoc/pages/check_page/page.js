"use strict";
// The page of `adrenoc check --html`: cards, graph, memory over time, tables.  Reads #data only.
(() => {
  const { verdict, layout, node_size: nodeSize } = JSON.parse(
    document.getElementById("data").textContent
  );
  const { totals, memory, nodes } = verdict;
  const byTensor = new Map(nodes.map((node) => [node.tensor, node]));
  const PLACE = { texture: "#0f9d8a", buffer: "#e08a00", cpu: "#c62828", clml: "#7c3aed", output: "#64748b" };
  const BOUND = { alu: "#6d5bd0", texture: "#0f9d8a", dram: "#e08a00", "": "#94a3b8" };
  const KIND = { compute: "#0f9d8a", copy: "#e08a00", layout: "#d9b300", pad: "#b45309", device: "#c62828" };
  const $ = (id) => document.getElementById(id);

  // Text

  const units = (value, step, names) => {
    let i = 0;
    while (Math.abs(value) >= step && i < names.length - 1) { value /= step; i += 1; }
    const digits = i === 0 || value >= 100 ? 0 : value >= 10 ? 1 : 2;
    return `${value.toFixed(digits)} ${names[i]}`;
  };
  const bytes = (value) => units(value, 1024, ["B", "KiB", "MiB", "GiB"]);
  const count = (value, unit) => units(value, 1000, ["", "k", "M", "G", "T"]).trimEnd() + unit;
  const counted = (number, noun) => `${number} ${noun}${number === 1 ? "" : /(ss|ch)$/.test(noun) ? "es" : "s"}`;
  const time = (us) => {
    if (us === null || us === undefined) return "unknown";
    if (us >= 1000) return `${(us / 1000).toFixed(us >= 1e5 ? 0 : 2)} ms`;
    return `${us >= 10 ? us.toFixed(1) : us.toFixed(2)} µs`;
  };
  const dims = (shape) => shape.join(" × ") || "scalar";
  const el = (tag, options = {}, ...children) => {
    const { dataset, style, ...rest } = options;
    const made = Object.assign(document.createElement(tag), rest);
    Object.assign(made.dataset, dataset || {});
    Object.entries(style || {}).forEach(([key, value]) => made.style.setProperty(key, value));
    made.append(...children);
    return made;
  };
  const regions = new Map(verdict.regions.map((region) => [region.symbol, region]));
  const gain = (r) => r.texture_us / Math.max(r.clml_us + r.copies_us, 1);
  const kinds = (r) => {
    const found = new Map();
    r.operators.forEach((name) => found.set(name, (found.get(name) || 0) + 1));
    return [...found].sort((a, b) => b[1] - a[1])
      .map(([name, times]) => (times === 1 ? name : `${name} ×${times}`)).join(", ");
  };
  const placeOf = (node) => (node.is_output && node.place === "buffer" ? "output" : node.place);
  const tag = (place) => el("span", { className: "tag", style: { background: PLACE[place] } }, place);

  // Cards

  const split = (parts) => {
    const whole = parts.reduce((sum, [value]) => sum + value, 0) || 1;
    return el("div", { className: "split" }, ...parts.map(([value, colour]) =>
      el("i", { style: { width: `${(100 * value) / whole}%`, background: colour } })));
  };
  const card = (title, big, lines, bar) => $("cards").append(el("div", { className: "card" },
    el("h3", {}, title), el("div", { className: "big" }, big), ...(bar ? [bar] : []),
    ...lines.map((line) => el("p", {}, line))));
  const copies = nodes.filter((node) => node.kind !== "compute").length;
  card("Nodes", String(nodes.length), [
    `${totals.texture_nodes} texture, ${totals.buffer_nodes} buffer, ${totals.cpu_nodes} CPU, ` +
      counted(totals.output_nodes, "output"),
    `${copies} only move data`,
  ], split([[totals.texture_nodes, PLACE.texture], [totals.buffer_nodes, PLACE.buffer],
    [totals.cpu_nodes, PLACE.cpu], [totals.clml_nodes, PLACE.clml],
    [totals.output_nodes, PLACE.output]]));
  const bounds = {};
  nodes.forEach((node) => { if (node.time_us) bounds[node.bound] = (bounds[node.bound] || 0) + node.time_us; });
  card("Time, at least", time(totals.time_us), [
    totals.time_us === null ? "the target states no rates"
      : Object.entries(bounds).sort((a, b) => b[1] - a[1])
        .map(([name, us]) => `${Math.round((100 * us) / totals.time_us)} % ${name}`).join(", "),
    verdict.unknown_rates.length
      ? `left out: ${verdict.unknown_rates.map((key) => key.replace("performance.", "")).join(", ")}`
      : "roofline of the target: a floor, not a forecast",
  ], split(Object.entries(bounds).map(([name, us]) => [us, BOUND[name]])));
  const plan = memory.plan;
  card("GPU memory", bytes(plan.peak_bytes), [
    `${bytes(plan.param_bytes)} constants, ${bytes(plan.slot_bytes)} intermediate, ` +
      `${bytes(plan.input_bytes + plan.output_bytes)} in and out`,
    `at most ${bytes(memory.pitched_bytes)} with padded rows`,
  ], split([[plan.param_bytes, "#6d5bd0"], [plan.slot_bytes, "#0f9d8a"],
    [plan.input_bytes + plan.output_bytes, "#64748b"]]));
  card("Arithmetic", count(totals.macs, "MAC"), [
    `${count(totals.flops, "FLOP")} in all`,
    `${bytes(totals.bytes)} through the memory bus at least`,
  ]);
  card("Kernels", String(totals.kernels), [counted(totals.launches, "launch"),
    `${counted(verdict.decisions.length, "decision")}, ${counted(verdict.near_misses.length, "near miss")}`]);

  if (verdict.regions.length || verdict.kept_back) {
    const offloaded = verdict.regions.reduce((sum, r) => sum + r.operators.length, 0);
    const us = (key) => verdict.regions.reduce((sum, r) => sum + r[key], 0);
    card("OpenCL ML", counted(offloaded, "operator"), [
      `in ${counted(verdict.regions.length, "region")}; ${counted(verdict.kept_back, "operator")} kept back`,
      ...(offloaded ? [`estimated ${time(us("clml_us"))} + ${time(us("copies_us"))} for copies, ` +
        `${time(us("texture_us"))} in textures`] : []),
    ], split([[offloaded, PLACE.clml], [verdict.kept_back, PLACE.texture]]));
  }

  // Graph

  const longest = Math.max(...nodes.map((node) => node.time_us || 0), 1e-9);
  const heat = (share) => {
    const stops = [[226, 232, 240], [250, 204, 21], [234, 88, 12], [153, 27, 27]];
    const at = Math.min(Math.sqrt(share), 0.9999) * (stops.length - 1);
    const low = stops[Math.floor(at)], high = stops[Math.floor(at) + 1];
    return `rgb(${low.map((c, i) => Math.round(c + (high[i] - c) * (at % 1))).join(",")})`;
  };
  const colours = {
    place: (node) => PLACE[placeOf(node)],
    time: (node) => heat((node.time_us || 0) / longest),
    bound: (node) => BOUND[node.bound],
    kind: (node) => KIND[node.kind],
  };
  const legends = {
    place: Object.entries({ ...PLACE, "output of the model": PLACE.output }).filter(([k]) => k !== "output"),
    time: [0, 0.1, 0.4, 1].map((share) => [time(share * longest), heat(share)]),
    bound: Object.entries(BOUND).map(([name, colour]) => [name || "unknown", colour]),
    kind: Object.entries(KIND),
  };
  const short = (name) => (name.length > 27 ? `…${name.slice(-26)}` : name);
  const elements = nodes.map((node) => ({
    data: { id: node.tensor, label: `${node.operators.join(" ").slice(0, 27)}\n${short(node.tensor)}` },
    position: { x: layout[node.tensor][0], y: layout[node.tensor][1] },
  }));
  nodes.forEach((node) => node.reads.forEach((source) => {
    if (!byTensor.has(source)) return;
    const [x0, y0] = layout[source], [x1, y1] = layout[node.tensor];
    const near = Math.abs(x1 - x0) < 600 && y1 > y0 && y1 - y0 < 2 * (nodeSize[1] + 40);
    elements.push({ data: { source, target: node.tensor, bend: near ? 0 : 1 } });
  }));
  const graph = cytoscape({
    container: $("graph"),
    elements,
    layout: { name: "preset" },
    minZoom: 0.02,
    maxZoom: 3,
    wheelSensitivity: 0.35,
    hideEdgesOnViewport: nodes.length > 800,
    textureOnViewport: nodes.length > 800,
    style: [
      { selector: "node", style: {
        shape: "round-rectangle", width: nodeSize[0], height: nodeSize[1], label: "data(label)",
        "background-color": "data(colour)", color: "data(ink)", "font-size": 12.5, "text-wrap": "wrap",
        "text-valign": "center", "line-height": 1.3, "min-zoomed-font-size": 6,
        "font-family": "system-ui, 'DejaVu Sans', sans-serif",
      } },
      { selector: "edge", style: {
        width: 1.6, "line-color": "#b6c2cf", "target-arrow-color": "#b6c2cf",
        "target-arrow-shape": "triangle", "arrow-scale": 0.8, "curve-style": "bezier",
      } },
      { selector: "edge[bend = 1]", style: {
        "curve-style": "unbundled-bezier", "control-point-distances": [70], "control-point-weights": [0.5],
        "line-style": "dashed", "line-color": "#cdd6df",
      } },
      { selector: "node.faint", style: { opacity: 0.18 } },
      { selector: "edge.faint", style: { opacity: 0.08 } },
      { selector: "node.chosen", style: { "border-width": 4, "border-color": "#1d4ed8" } },
      { selector: "edge.chosen", style: { "line-color": "#1d4ed8", "target-arrow-color": "#1d4ed8", width: 2.5 } },
    ],
  });
  const paint = () => {
    const mode = $("colour").value;
    graph.batch(() => nodes.forEach((node) => {
      const colour = colours[mode](node);
      const light = mode === "time" && (node.time_us || 0) / longest < 0.2;
      graph.getElementById(node.tensor).data({ colour, ink: light ? "#1b2430" : "#ffffff" });
    }));
    $("legend").replaceChildren(...legends[mode].map(([name, colour]) =>
      el("span", { style: { "--c": colour } }, name)));
  };
  $("colour").addEventListener("change", paint);
  paint();
  const start = () => {
    graph.fit(undefined, 30);
    if (graph.zoom() > 1) { graph.zoom(1); graph.center(); }
  };
  $("fit").addEventListener("click", start);
  start();

  // Details

  const row = (name, value) => (value === "" || value === null ? [] : [el("dt", {}, name), el("dd", {}, value)]);
  const pipes = (node) => {
    const known = [["ALU", node.alu_us, "alu"], ["texture", node.texture_us, "texture"],
      ["DRAM", node.dram_us, "dram"]].filter(([, us]) => us !== null);
    return el("div", { className: "bars" }, ...known.map(([name, us, key]) =>
      el("div", { className: key === node.bound ? "most" : "" }, el("span", {}, name),
        el("i", { style: { width: `${(100 * us) / (node.time_us || 1)}%` } }), el("b", {}, time(us)))));
  };
  const links = (names) => el("span", {}, ...names.flatMap((name, i) => [...(i ? [", "] : []),
    el("a", { onclick: () => choose(name, true) }, name)]));
  const readers = new Map();
  nodes.forEach((node) => node.reads.forEach((name) =>
    readers.set(name, [...(readers.get(name) || []), node.tensor])));
  const inRegion = (r) => (r ? [...row("runs", kinds(r)), ...row("needs", `CLML ${r.version}, ${r.dtype}`),
    ...row("estimated", `${time(r.clml_us)} and ${time(r.copies_us)} for ${r.copies} copies, ` +
      `${time(r.texture_us)} in textures: ${gain(r).toFixed(2)} ×`)] : []);
  const show = (node) => {
    const decided = verdict.decisions.filter((d) => d.subject === node.tensor);
    $("details").replaceChildren(
      el("h3", {}, node.tensor), tag(placeOf(node)),
      ...(node.reason ? [el("div", { className: "why" }, node.reason)] : []),
      el("dl", {}, ...row("node", node.node), ...row("operators", node.operators.join(", ")),
        ...row("shape", `${dims(node.shape)}, ${node.dtype}`), ...row("layout", node.layout),
        ...row(regions.has(node.kernel) ? "region" : "kernel", node.kernel),
        ...inRegion(regions.get(node.kernel)),
        ...row("arithmetic", node.flops ? `${count(node.macs, "MAC")}, ${count(node.flops, "FLOP")}` : ""),
        ...row("reads", `${bytes(node.bytes_read)}${node.weight_bytes ? `, ${bytes(node.weight_bytes)} of it constants` : ""}`),
        ...row("writes", bytes(node.bytes_written)),
        ...row("texels", node.texels ? count(node.texels, "") : ""),
        ...row("time", node.time_us === null ? "unknown" : `at least ${time(node.time_us)}`)),
      pipes(node),
      el("dl", {}, ...row("reads from", node.reads.length ? links(node.reads) : ""),
        ...row("read by", readers.has(node.tensor) ? links(readers.get(node.tensor)) : "")),
      ...decided.map((d) => el("div", { className: "why" }, `${d.stage}: ${d.taken}. ${d.reason}`)));
  };
  const choose = (name, move) => {
    const node = byTensor.get(name);
    if (!node) return;
    graph.elements().removeClass("chosen");
    const drawn = graph.getElementById(name);
    drawn.addClass("chosen");
    drawn.connectedEdges().addClass("chosen");
    document.querySelectorAll(".memory .chosen").forEach((rect) => rect.classList.remove("chosen"));
    document.querySelectorAll(".memory rect.held").forEach((rect) => {
      if (rect.dataset.node === name) rect.classList.add("chosen");
    });
    if (move) graph.animate({ center: { eles: drawn }, zoom: Math.max(graph.zoom(), 0.8) }, { duration: 250 });
    show(node);
  };
  graph.on("tap", "node", (event) => choose(event.target.id(), false));
  const first = nodes.reduce((most, node) => ((node.time_us || 0) > (most.time_us || 0) ? node : most), nodes[0]);
  if (first) choose(first.tensor, false);

  // Search

  $("search").addEventListener("input", () => {
    const wanted = $("search").value.trim().toLowerCase();
    const hit = (node) => [node.tensor, node.node, node.kernel, node.operators.join(" ")]
      .some((text) => text.toLowerCase().includes(wanted));
    const hits = wanted ? nodes.filter(hit) : nodes;
    const kept = new Set(hits.map((node) => node.tensor));
    graph.batch(() => {
      graph.nodes().forEach((drawn) => { drawn.toggleClass("faint", !kept.has(drawn.id())); });
      graph.edges().toggleClass("faint", Boolean(wanted));
    });
    $("found").textContent = wanted ? `${hits.length} of ${nodes.length}` : "";
  });
  $("search").addEventListener("keydown", (event) => {
    if (event.key !== "Enter") return;
    const hit = graph.nodes().not(".faint")[0];
    if (hit && $("search").value) choose(hit.id(), true);
  });

  // Memory over time

  const svg = (name, attributes, text) => {
    const made = document.createElementNS("http://www.w3.org/2000/svg", name);
    Object.entries(attributes).forEach(([key, value]) => made.setAttribute(key, value));
    if (text !== undefined) made.textContent = text;
    return made;
  };
  const drawMemory = () => {
    const steps = nodes.length, width = 1500, height = 380, left = 74, bottom = 24;
    const onGpu = memory.slots.filter((slot) => slot.scope !== "cpu");
    const whole = onGpu.reduce((sum, slot) => sum + slot.bytes, 0) || 1;
    const x = (step) => left + ((width - left - 8) * step) / steps;
    const y = (amount) => height - bottom - ((height - bottom - 8) * amount) / whole;
    const chart = svg("svg", { viewBox: `0 0 ${width} ${height}` });
    let base = 0;
    const hues = [174, 204, 262, 32, 96, 340, 228, 60];
    onGpu.forEach((slot, number) => {
      chart.append(svg("rect", { x: left, width: width - left - 8, y: y(base + slot.bytes),
        height: y(base) - y(base + slot.bytes), fill: number % 2 ? "#f6f8fa" : "#eef2f6" }));
      slot.tensors.forEach((held, turn) => {
        const rect = svg("rect", { class: "held", x: x(held.first), width: Math.max(x(held.last + 1) - x(held.first) - 0.5, 0.8),
          y: y(base + held.bytes), height: Math.max(y(base) - y(base + held.bytes), 0.8), rx: 1.5,
          fill: `hsl(${hues[number % hues.length]} 48% ${turn % 2 ? 62 : 52}%)` });
        rect.dataset.node = held.tensor;
        rect.append(svg("title", {}, `${held.tensor}\n${bytes(held.bytes)} in a slot of ${bytes(slot.bytes)} ` +
          `(${slot.scope.replace("global.", "").replace("global", "buffer")})\nsteps ${held.first} to ${held.last}`));
        rect.addEventListener("click", () => choose(held.tensor, true));
        chart.append(rect);
      });
      base += slot.bytes;
    });
    const change = new Array(steps + 1).fill(0);
    onGpu.forEach((slot) => slot.tensors.forEach((held) => {
      change[held.first] += held.bytes;
      change[held.last + 1] -= held.bytes;
    }));
    let alive = 0;
    const line = change.slice(0, steps).map((delta, step) => {
      alive += delta;
      return `${step ? "L" : "M"}${x(step)},${y(alive)} L${x(step + 1)},${y(alive)}`;
    });
    chart.append(svg("path", { d: line.join(" "), fill: "none", stroke: "#0f172a", "stroke-width": 1.6 }));
    for (let i = 0; i <= 4; i += 1) {
      chart.append(svg("text", { x: left - 8, y: y((whole * i) / 4) + 4, "text-anchor": "end" }, bytes((whole * i) / 4)));
      const step = Math.round((steps * i) / 4);
      chart.append(svg("text", { x: x(step), y: height - 6, "text-anchor": i === 4 ? "end" : i ? "middle" : "start" }, `step ${step}`));
    }
    $("memory").append(chart);
    $("memory-note").textContent = `${onGpu.length} slots, ${bytes(plan.slot_bytes)}; the line is what is alive at once, ` +
      `${bytes(plan.live_bytes)} at most (at ${memory.live_tensor}). A band is a slot, a box a tensor in it.`;
  };
  drawMemory();

  // Nodes, and rows of other tables that begin with one

  const order = new Map(nodes.map((node, i) => [node.tensor, i]));
  const columns = [
    { title: "step", key: (n) => order.get(n.tensor), show: (n) => String(order.get(n.tensor)), number: true },
    { title: "tensor", key: (n) => n.tensor, wide: true },
    { title: "operators", key: (n) => n.operators.join(" "), wide: true },
    { title: "shape", key: (n) => n.shape.reduce((a, b) => a * b, 1), show: (n) => dims(n.shape), tight: true },
    { title: "place", key: placeOf, show: (n) => tag(placeOf(n)) },
    { title: "FLOP", key: (n) => n.flops, show: (n) => (n.flops ? count(n.flops, "") : ""), number: true },
    { title: "memory bus", key: (n) => n.bytes_read + n.bytes_written,
      show: (n) => bytes(n.bytes_read + n.bytes_written), number: true },
    { title: "time", key: (n) => n.time_us || 0, show: (n) => (n.time_us === null ? "" : time(n.time_us)), number: true },
    { title: "bound", key: (n) => n.bound },
    { title: "reason", key: (n) => n.reason, wide: true },
  ];
  const head = el("tr"), body = el("tbody");
  let sorted = null, down = true;
  const list = () => {
    const shown = [...nodes];
    if (sorted !== null) {
      const key = columns[sorted].key;
      shown.sort((a, b) => {
        const p = key(a), q = key(b);
        const order = typeof p === "number" && typeof q === "number" ? p - q : String(p).localeCompare(String(q));
        return down ? -order : order;
      });
    }
    body.replaceChildren(...shown.map((node) => el("tr",
      { dataset: { node: node.tensor }, onclick: () => choose(node.tensor, true) },
      ...columns.map((column) => el("td", { className: column.number ? "number" : column.wide ? "name" : column.tight ? "tight" : "" },
        (column.show || column.key)(node))))));
    [...head.children].forEach((cell, i) => {
      cell.classList.toggle("down", i === sorted && down);
      cell.classList.toggle("up", i === sorted && !down);
    });
  };
  columns.forEach((column, i) => head.append(el("th", {
    className: column.number ? "number" : "",
    onclick: () => { down = sorted === i ? !down : Boolean(column.number); sorted = i; list(); },
  }, column.title)));
  $("nodes").append(el("thead", {}, head), body);
  list();
  document.querySelectorAll("td:first-child").forEach((cell) => {
    const region = regions.get(cell.textContent), goal = region ? region.outputs[0] : cell.textContent;
    if (!byTensor.has(goal) || cell.closest("#nodes")) return;
    cell.parentElement.dataset.node = goal;
    cell.parentElement.addEventListener("click", () => choose(goal, true));
  });
  document.body.dataset.ready = "yes";
})();
