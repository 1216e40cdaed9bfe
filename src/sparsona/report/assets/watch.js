"use strict";
/* The page of `sparsona watch`: shows each state that the server sends. Every text is set as text, never as markup. */
(() => {
  const byId = (id) => document.getElementById(id);
  const known = (v) => v !== null && v !== undefined && Number.isFinite(v);
  const size = (b) => {
    for (const [unit, step] of [["GB", 1e9], ["MB", 1e6], ["kB", 1e3]]) if (b >= step) return (b / step).toFixed(2) + " " + unit;
    return b + " B";
  };
  const span = (s) => (!known(s) ? "–" : s < 60 ? Math.ceil(s) + " s" : s < 3600 ? Math.ceil(s / 60) + " min" : (s / 3600).toFixed(1) + " h");
  const score = (v, run) => (!known(v) ? "–" : run.percent ? (100 * v).toFixed(1) + " %" : v.toPrecision(4));
  const last = (list) => list[list.length - 1];
  const style = (name) => getComputedStyle(document.documentElement).getPropertyValue("--" + name).trim();
  const escape = (text) => String(text).replace(/[&<>"]/g, (c) => ({ "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;" })[c]);
  const scheme = matchMedia("(prefers-color-scheme: dark)");
  const COLOURS = { light: ["#0072B2", "#D55E00", "#009E73", "#B0578D", "#A67C00", "#2B8CBE", "#6A51A3", "#8B4513", "#4D4D4D"],
    dark: ["#56B4E9", "#FF9E4A", "#2FD6A5", "#E79CC7", "#F0E442", "#8FD3FF", "#B9A5F5", "#D9A066", "#C8C8C8"] };
  const charts = { score: echarts.init(byId("chart-score")), bytes: echarts.init(byId("chart-bytes")) };
  let state = null, which = "";

  function cell(tag, text, left) {
    const out = document.createElement(tag);
    out.textContent = text;
    if (left) out.className = "text";
    return out;
  }
  function table(parent, heads, rows) {
    const out = document.createElement("table"), head = out.createTHead().insertRow(), body = out.createTBody();
    head.append(...heads.map(([text, left]) => cell("th", text, left)));
    for (const row of rows) body.insertRow().append(...row.map((text, i) => cell("td", text, heads[i][1])));
    parent.replaceChildren(out);
  }
  function draw(chart, series, name, scale) {
    const axis = (more) => ({ nameLocation: "middle", nameGap: 30, nameTextStyle: { color: style("soft") }, axisLabel: { color: style("soft"), hideOverlap: true }, splitLine: { lineStyle: { color: style("line") } }, ...more });
    chart.resize();
    chart.setOption({
      animation: false,
      color: COLOURS[scheme.matches ? "dark" : "light"],
      grid: { left: 60, right: 16, top: 36, bottom: 44 },
      legend: { type: "scroll", top: 0, textStyle: { color: style("ink") } },
      tooltip: { trigger: "axis", confine: true, backgroundColor: style("page"), borderColor: style("line"), textStyle: { color: style("ink") },
        formatter: (points) => points.map((p) => `${escape(p.seriesName)}, round ${p.value[0]}: ${name === "bytes" ? size(p.value[1]) : Number(p.value[1].toPrecision(4))}`).join("<br>") },
      xAxis: axis({ type: "value", name: "round", minInterval: 1, min: 0 }),
      yAxis: axis({ type: "value", scale, axisLabel: { color: style("soft"), formatter: (v) => (name === "bytes" ? size(v) : String(v)) } }),
      series: series.map(([label, x, y]) => ({ type: "line", name: label, symbolSize: 5, data: x.map((v, i) => [v, y[i]]) })),
    }, { notMerge: true });
  }
  function headline() {
    const runs = state.runs, ended = runs.filter((run) => run.state === "finished").length;
    if (state.node && !runs.length) return `node: ${state.node.turns} turns, ${size(state.node.sent)} sent`;
    if (!runs.length) return "waiting for the first round";
    if (state.planned > 1) {
      const now = runs.filter((run) => run.state === "running").map((run) => `${run.name} round ${run.round} of ${run.rounds}`);
      return `${ended} of ${state.planned} runs finished` + (now.length ? "; now " + now.slice(0, 3).join(", ") : "");
    }
    const run = runs[0], value = last(run.curve.score);
    const what = { finished: `finished: ${run.rounds} rounds in ${span(run.seconds)}`, running: `round ${run.round} of ${run.rounds}, ${span(run.left)} left`,
      silent: `silent for ${span(run.age)} after round ${run.round} of ${run.rounds}: it was stopped, or waits for a client` }[run.state];
    return what + (known(value) ? `; ${run.metric} ${score(value, run)}` : "") + `; ${size(run.up + run.down)}` + (run.privacy ? `; privacy: ${run.privacy}` : "");
  }
  function clients() {
    const run = state.runs.find((one) => one.name === which) || state.runs[0];
    if (!run) return;
    table(byId("clients"), [["client", true], ["now", true], ["round"], ["failures"], [run.metric || "score"], ["up"], ["down"], ["why", true]],
      run.clients.map((c) => [c.id, c.state, c.round || "–", c.failures, score(c.score, run), size(c.up), size(c.down), c.why]));
  }
  function show() {
    const runs = state.runs;
    byId("title").textContent = state.folder;
    byId("state").textContent = headline();
    const total = runs.reduce((sum, run) => sum + run.rounds, 0);
    byId("progress").value = total ? runs.reduce((sum, run) => sum + run.round, 0) / total * (runs.length / state.planned) : 0;
    byId("problems").hidden = !state.problems.length;
    byId("problems").replaceChildren(...state.problems.map((line) => { const p = cell("p", line); p.className = "warning"; return p; }));
    byId("node").hidden = !state.node;
    if (state.node) {
      byId("node-sum").textContent = `${state.node.turns} turns: ${size(state.node.received)} received, ${size(state.node.sent)} sent. The rows stay here.${state.node.privacy ? ` Privacy: ${state.node.privacy}.` : ""}`;
      byId("log").textContent = state.node.lines.join("\n");
    }
    byId("runs-part").hidden = !runs.length;
    if (!runs.length) return;
    byId("score-help").textContent = `Mean ${runs[0].metric}${runs[0].percent ? ", %" : ""} over clients, on their test rows before local training.`;
    draw(charts.score, runs.map((run) => [run.name, run.curve.round, run.curve.score.map((v) => (run.percent ? 100 * v : v))]), "score", true);
    draw(charts.bytes, runs.map((run) => [run.name, run.bytes.round, run.bytes.total]), "bytes", false);
    table(byId("runs"), [["run", true], ["method", true], ["state", true], ["round"], ["left"], ["score"], ["up"], ["down"]],
      runs.map((run) => [run.name, run.method, run.state, `${run.round}/${run.rounds}`, span(run.left), score(last(run.curve.score), run), size(run.up), size(run.down)]));
    const names = runs.map((run) => run.name), list = byId("which");
    if (names.join("\n") !== [...list.options].map((o) => o.value).join("\n"))
      list.replaceChildren(...names.map((name) => { const o = cell("option", name); o.value = name; o.selected = name === which; return o; }));
    clients();
  }
  const theme = () => { document.documentElement.dataset.theme = scheme.matches ? "dark" : "light"; if (state) show(); };
  byId("which").addEventListener("change", (event) => { which = event.target.value; clients(); });
  scheme.addEventListener("change", theme);
  window.addEventListener("resize", () => state && show());
  theme();
  const source = new EventSource("/events");
  source.onmessage = (event) => { state = JSON.parse(event.data); show(); };
  source.onerror = () => { byId("state").textContent = "the connection to sparsona watch is lost; trying again"; };
})();
