"use strict";
/* The page of a report. All numbers come from the script element "data"; here they are only shown. */
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const byId = (id) => document.getElementById(id);
  const percent = data.percent;
  const scale = percent ? 100 : 1;
  const phone = () => window.innerWidth < 760;

  /* ---- text ---- */
  const known = (v) => v !== null && v !== undefined && Number.isFinite(v);
  const num = (v, digits = 3) => (known(v) ? String(Number(v.toPrecision(digits))) : "–");
  const score = (v) => (known(v) ? (percent ? (100 * v).toFixed(1) + " %" : v.toPrecision(4)) : "–");
  const signed = (v) => (!known(v) ? "–" : (v < 0 ? "−" : "+") + (percent ? (100 * Math.abs(v)).toFixed(1) : num(Math.abs(v))));
  const size = (b) => {
    if (!known(b)) return "–";
    for (const [unit, step] of [["GB", 1e9], ["MB", 1e6], ["kB", 1e3]]) if (b >= step) return (b / step).toFixed(2) + " " + unit;
    return b.toFixed(0) + " B";
  };
  const plain = (v) => (known(v) ? (percent ? (100 * v).toFixed(1) : v.toPrecision(4)) : "–");
  const withHalf = (i, text = score) => (!i ? "–" : text(i.mean) + (known(i.half) ? " ± " + (percent ? (100 * i.half).toFixed(1) : num(i.half)) : ""));
  const unit = data.metric + (percent ? ", %" : "");

  function node(tag, attributes = {}, ...children) {
    const out = document.createElement(tag);
    for (const [key, value] of Object.entries(attributes)) {
      if (key.startsWith("on")) out.addEventListener(key.slice(2), value);
      else if (value !== null && value !== undefined && value !== false) out.setAttribute(key, value === true ? "" : value);
    }
    out.append(...children.filter((child) => child !== null && child !== undefined));
    return out;
  }

  /* ---- colours: Okabe and Ito's, told apart by symbols and dashes, too ---- */
  const LIGHT = ["#0072B2", "#D55E00", "#009E73", "#B0578D", "#A67C00", "#2B8CBE", "#6A51A3", "#8B4513", "#4D4D4D"];
  const DARK = ["#56B4E9", "#FF9E4A", "#2FD6A5", "#E79CC7", "#F0E442", "#8FD3FF", "#B9A5F5", "#D9A066", "#C8C8C8"];
  const SYMBOLS = ["circle", "rect", "triangle", "diamond", "roundRect", "pin", "arrow"];
  const DASHES = ["solid", "dashed", "dotted", [8, 3, 2, 3]];
  const RAMP = ["#eef3f8", "#c6dbef", "#6baed6", "#2171b5", "#08306b"]; /* one hue: little is pale, much is deep */
  const RAMP_DARK = ["#1c2530", "#1f4e79", "#2f7fc1", "#7cc0f5", "#e8f4ff"];
  const labels = data.methods.map((m) => m.label);
  const method = (label) => data.methods.find((m) => m.label === label);
  const style = (name) => getComputedStyle(document.documentElement).getPropertyValue("--" + name).trim();
  const dark = () => document.documentElement.dataset.theme === "dark";
  function look(label) {
    const palette = dark() ? DARK : LIGHT;
    const others = labels.filter((l) => !data.ways.includes(l));
    const k = others.indexOf(label);
    if (k < 0) return { color: style("soft"), symbol: "emptyCircle", dash: "dashed", width: 2 };
    const best = label === data.answer.method;
    return { color: palette[k % palette.length], symbol: SYMBOLS[k % SYMBOLS.length], dash: DASHES[Math.floor(k / palette.length + k / 4) % DASHES.length], width: best ? 4 : 2 };
  }

  /* ---- charts ---- */
  const charts = {};
  const drawers = {};
  const main = byId("main");
  function section(id, title, help) {
    const out = node("section", { id, "aria-labelledby": id + "-h" }, node("h2", { id: id + "-h" }, title), help ? node("p", { class: "soft" }, help) : null);
    main.append(out);
    byId("nav").append(node("a", { href: "#" + id }, title));
    return out;
  }

  /* A figure: `option()` gives the chart, `rows()` the same numbers as a table, `points()` what the arrow keys visit. */
  function figure(parent, id, title, help, { option, rows, height }) {
    const box = node("div", { class: "chart", id: "chart-" + id, tabindex: "0", role: "img", "aria-label": title + ". Arrow keys walk through the values.", "aria-describedby": id + "-help" });
    if (height) box.style.height = height() + "px";
    const holder = node("div", { class: "scroll" });
    const numbers = node("details", {}, node("summary", {}, "Numbers"), holder);
    numbers.addEventListener("toggle", () => numbers.open && fill());
    const fill = () => {
      const [head, ...body] = rows();
      holder.replaceChildren(table(head, body));
    };
    parent.append(node("figure", {}, node("figcaption", {}, node("h3", {}, title), node("p", { id: id + "-help" }, help)), box, numbers));
    const chart = echarts.init(box, null, { renderer: "canvas" });
    charts[id] = chart;
    drawers[id] = () => {
      if (height) box.style.height = height() + "px";
      chart.resize();
      chart.setOption({ animation: false, textStyle: { fontFamily: getComputedStyle(document.body).fontFamily }, ...option() }, { notMerge: true });
      if (numbers.open) fill();
    };
    walk(box, chart, title);
    return () => drawers[id]();
  }

  function table(head, body) {
    return node("table", {}, node("thead", {}, node("tr", {}, ...head.map((h) => node("th", { scope: "col" }, h)))), node("tbody", {}, ...body.map((cells) => node("tr", {}, ...cells.map((cell, i) => node(i ? "td" : "th", i ? {} : { scope: "row" }, String(cell)))))));
  }

  /* Arrow keys: left and right along a series, up and down between series; the tooltip shows, the status line says it. */
  function walk(box, chart, title) {
    let at = null;
    const series = () => (chart.getOption().series || []).map((s, i) => [s, i]).filter(([s]) => !s.silent && (s.data || []).some((d) => d !== null));
    box.addEventListener("keydown", (event) => {
      const step = { ArrowRight: [0, 1], ArrowLeft: [0, -1], ArrowDown: [1, 0], ArrowUp: [-1, 0], Home: [0, -1e9], End: [0, 1e9] }[event.key];
      if (event.key === "Escape") { chart.dispatchAction({ type: "hideTip" }); at = null; return; }
      if (!step) return;
      event.preventDefault();
      const all = series();
      if (!all.length) return;
      if (!at) at = [0, event.key === "End" ? 1e9 : 0];
      else at = [at[0] + step[0], at[1] + step[1]];
      at[0] = Math.max(0, Math.min(all.length - 1, at[0]));
      const [one, index] = all[at[0]];
      at[1] = Math.max(0, Math.min(one.data.length - 1, at[1]));
      chart.dispatchAction({ type: "downplay" });
      chart.dispatchAction({ type: "highlight", seriesIndex: index, dataIndex: at[1] });
      chart.dispatchAction({ type: "showTip", seriesIndex: index, dataIndex: at[1] });
      const tip = [...box.querySelectorAll("div")].map((d) => d.innerText).filter(Boolean).pop() || "";
      byId("say").textContent = title + ": " + tip.replace(/\n+/g, ", ");
    });
    box.addEventListener("blur", () => { chart.dispatchAction({ type: "hideTip" }); chart.dispatchAction({ type: "downplay" }); at = null; });
  }

  const axisText = () => ({ color: style("soft"), fontSize: 13 });
  function axis(name, more = {}) {
    return { name, nameLocation: "middle", nameGap: 30, nameTextStyle: { color: style("soft"), fontSize: 13 }, axisLabel: { ...axisText(), hideOverlap: true }, axisLine: { lineStyle: { color: style("line") } }, splitLine: { lineStyle: { color: style("line"), opacity: 0.6 } }, ...more };
  }
  /* Round ends of an axis around numbers, and around scores, which have no room above 100 %. */
  function ends(values) {
    const least = Math.min(...values), most = Math.max(...values), room = most - least || Math.abs(most) || 1;
    const step = 10 ** Math.floor(Math.log10(room)) / 2;
    const high = Math.ceil((most + 0.08 * room) / step) * step;
    return [Math.floor((least - 0.08 * room) / step) * step, high].map((v) => Number(v.toPrecision(6)));
  }
  const around = (values) => { const [low, high] = ends(values); return [low, percent ? Math.min(high, 102) : high]; };
  const scoreText = () => ({ ...axisText(), formatter: (v) => (percent && v > 100 ? "" : num(v, 4)) });
  const scoreAxis = (name, more = {}) => axis(name, { type: "value", scale: true, nameGap: 42, axisLabel: scoreText(), ...more });
  const tooltip = (more = {}) => ({ confine: true, backgroundColor: style("page"), borderColor: style("line"), textStyle: { color: style("ink"), fontSize: 13 }, ...more });
  const legend = (more = {}) => ({ type: "scroll", top: 0, textStyle: { color: style("ink"), fontSize: 13 }, pageTextStyle: { color: style("ink") }, pageIconColor: style("accent"), pageIconInactiveColor: style("line"), ...more });
  const escapeText = (text) => String(text).replace(/[&<>"]/g, (c) => ({ "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;" })[c]);
  const tip = (title, ...lines) => ["<b>" + escapeText(title) + "</b>", ...lines.filter(Boolean).map(escapeText)].join("<br>");

  function choice(parent, legendText, options, state, key, after) {
    const box = node("fieldset", { class: "choice" }, node("legend", {}, legendText));
    for (const [value, text] of options) {
      const button = node("button", { type: "button", "aria-pressed": String(state[key] === value) }, text);
      button.addEventListener("click", () => {
        state[key] = value;
        for (const other of box.querySelectorAll("button")) other.setAttribute("aria-pressed", String(other === button));
        after();
      });
      box.append(button);
    }
    parent.append(box);
  }
  function select(parent, text, options, state, key, after) {
    const list = node("select", {}, ...options.map(([value, shown]) => node("option", { value, selected: String(state[key]) === String(value) }, shown)));
    list.addEventListener("change", () => { state[key] = list.value; after(); });
    parent.append(node("label", {}, text, list));
    return list;
  }

  /* ---- the answer ---- */
  const entries = data.entries;
  const name = (e) => e.id + (e.seed === null ? "" : ", seed " + e.seed);
  const hasAlone = labels.includes(data.alone);
  function answer() {
    const strong = (text) => {
      const at = text.indexOf(data.answer.method);
      if (at < 0) return [text];
      return [text.slice(0, at), node("strong", {}, data.answer.method), text.slice(at + data.answer.method.length)];
    };
    byId("sentences").append(...["which", "gain", "cost"].map((key) => node("li", { id: "sentence-" + key }, ...strong(data.answer[key]))));
    if (hasAlone && labels.length > 1 && entries.length) {
      const state = { who: "0" };
      const out = node("output", { id: "mine" });
      const say = () => {
        const e = entries[Number(state.who)];
        const alone = e.scores[data.alone];
        const rivals = labels.filter((l) => !data.ways.includes(l) && known(e.scores[l]));
        const target = rivals.includes(data.answer.method) ? data.answer.method : data.joined;
        if (!known(alone) || !rivals.includes(target)) {
          out.className = "";
          out.textContent = `${name(e)} has no score: ${e.test} test samples are too few, or not all methods have been run.`;
          return;
        }
        const gain = (data.higher ? 1 : -1) * (e.scores[target] - alone);
        const verdicts = data.methods.find((m) => m.label === target).verdicts;
        const told = verdicts[e.id + " " + (known(e.seed) ? e.seed : "")];
        const word = Math.abs(gain) < 1e-9 ? "the same" : signed(gain) + (percent ? " points" : "") + (told ? ": " + told : gain > 0 ? ": joining helps you" : ": you are better off alone");
        out.className = told && told.startsWith("cannot") ? "" : gain < 0 ? "bad" : "good";
        out.textContent = `alone (${data.alone}) ${score(alone)}, with ${target} ${score(e.scores[target])}: ${word}. You train on ${e.train} samples and are tested on ${e.test}.`;
      };
      const box = byId("you");
      const line = node("div", { class: "controls" });
      select(line, "What do I gain? I am client", entries.map((e, i) => [i, name(e)]), state, "who", say);
      box.append(line, out);
      say();
    } else byId("you").remove();
    const now = byId("now");
    now.append(node("strong", {}, "What to do now. "), data.answer.now);
    for (const command of data.answer.commands) {
      const copy = node("button", { type: "button", "aria-label": "Copy the command" }, "Copy");
      copy.addEventListener("click", async () => {
        try { await navigator.clipboard.writeText(command); copy.textContent = "Copied"; }
        catch { const range = document.createRange(); range.selectNodeContents(text); getSelection().removeAllRanges(); getSelection().addRange(range); copy.textContent = "Marked: press Ctrl-C"; }
      });
      const text = node("pre", {}, command);
      now.append(node("div", { class: "command" }, text, copy));
    }
    for (const line of data.warnings) now.before(node("p", { class: "warning" }, line));
    if (data.notes.length) now.after(node("details", { id: "notes" }, node("summary", {}, "How this came about"), node("ul", {}, ...data.notes.map((line) => node("li", {}, line)))));
    byId("nav").append(node("a", { href: "#answer" }, "The answer"));
  }

  /* ---- the table ---- */
  function comparison() {
    const part = section("methods", "The methods side by side", `Scores are means over clients on their own test data, ${data.methods.some((m) => m.seeds.length > 1) ? "with 95 % intervals over seeds" + (data.redrawn ? "" : ", which redraw the training but not the split by time") : "with one seed"}. pre: the model as assembled; post: after a round of local training; vs alone: pre, paired with ${data.alone || "local"}; decile: the client at the bottom tenth; better and worse off: the share of clients that a paired test on their test rows shows to be (5 % error for each client), of the others the rows cannot tell; without such a test, worse off are those that score less; up and down: bytes of all clients; at so many bytes: pre when no more had been sent than the thriftiest method sends in all, or than the budget allows. Press a heading to sort.`);
    const columns = [
      ["method", (m) => m.label, null],
      [percent ? "pre, %" : "pre", (m) => withHalf(m.pre, plain), (m) => m.pre && m.pre.mean],
      [percent ? "post, %" : "post", (m) => withHalf(m.post, plain), (m) => m.post && m.post.mean],
      ["vs alone", (m) => withHalf(m.gain, signed), (m) => m.gain && m.gain.mean],
      ["decile", (m) => plain(m.decile), (m) => m.decile],
      ["better", (m) => (known(m.better_off) ? (100 * m.better_off).toFixed(0) + " %" : "–"), (m) => m.better_off],
      ["worse off", (m) => (known(m.worse_off) ? (100 * m.worse_off).toFixed(0) + " %" : "–"), (m) => m.worse_off],
      ...data.otherMetrics.map((name) => {
        const share = data.percents.includes(name);
        const text = (v) => (known(v) ? (share ? (100 * v).toFixed(1) : v.toPrecision(4)) : "–");
        return [name + (share ? ", %" : ""), (m) => (m.others[name] ? text(m.others[name].mean) + (known(m.others[name].half) ? " ± " + (share ? (100 * m.others[name].half).toFixed(1) : num(m.others[name].half)) : "") : "–"), (m) => m.others[name] && m.others[name].mean];
      }),
      ["up", (m) => size(m.up), (m) => m.up],
      ["down", (m) => size(m.down), (m) => m.down],
      [known(data.equalBytes) ? "at " + size(Number(data.equalBytes.toPrecision(2))).replace(/\.?0+ /, " ") : "at equal bytes", (m) => withHalf(m.at_equal, plain), (m) => m.at_equal && m.at_equal.mean],
      ["GFLOP", (m) => (known(m.flops) ? num(m.flops / 1e9) : "–"), (m) => m.flops],
      ["sim. s", (m) => num(m.simulated), (m) => m.simulated],
      ["real s", (m) => num(m.seconds), (m) => m.seconds],
    ];
    const body = node("tbody");
    const fill = (list) => body.replaceChildren(...list.map((m) => node("tr", m.label === data.answer.method ? { class: "best" } : {}, ...columns.map(([, text], i) => node(i ? "td" : "th", i ? {} : { scope: "row" }, text(m), !i && m.label === data.answer.method ? node("span", { class: "tag" }, data.answer.sure ? "advised" : "best so far") : null, !i && m.state ? node("span", { class: "tag" }, m.state) : null, !i && !m.finished ? node("span", { class: "tag" }, "round " + m.rounds) : null)))));
    const heads = columns.map(([title, text, value], i) => {
      const head = node("th", { scope: "col" });
      head.append(node("button", { type: "button", onclick: () => {
        const down = head.getAttribute("aria-sort") !== "descending";
        heads.forEach((h) => h.removeAttribute("aria-sort"));
        head.setAttribute("aria-sort", down ? "descending" : "ascending");
        const key = value || text;
        fill([...data.methods].sort((a, b) => {
          const [x, y] = [key(a), key(b)];
          const order = typeof x === "string" ? y.localeCompare(x) : (known(y) ? y : -Infinity) - (known(x) ? x : -Infinity);
          return down ? order : -order;
        }));
      } }, title));
      return head;
    });
    fill(data.methods);
    part.append(node("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Comparison of the methods" }, node("table", { id: "comparison" }, node("thead", {}, node("tr", {}, ...heads)), body)));
  }

  /* ---- curves ---- */
  function curves() {
    const part = section("learning", "How they learn", null);
    const state = { over: "round", point: "pre" };
    const overs = { round: "rounds", mb: "MB sent by all clients, up and down", seconds: "simulated seconds" };
    const controls = node("div", { class: "controls" });
    part.append(controls);
    const many = data.methods.some((m) => m.seeds.length > 1);
    const draw = figure(part, "curves", "Score over rounds, bytes and time", "Mean over clients" + (many ? " and seeds; the band runs from the lowest to the highest seed." : "."), {
      option: () => {
        const series = [];
        for (const m of data.methods) {
          const c = m.curves[state.point], l = look(m.label), xs = c[state.over];
          if (!xs.length) continue;
          series.push({ type: "line", name: m.label, data: xs.map((x, i) => [x, scale * c.mean[i], c.round[i]]), symbol: l.symbol, symbolSize: 7, showSymbol: xs.length <= 40, lineStyle: { width: l.width, type: l.dash }, itemStyle: { color: l.color }, z: m.label === data.answer.method ? 4 : 3, emphasis: { focus: "series" } });
          if (m.seeds.length > 1) series.push({ type: "custom", name: m.label, silent: true, clip: true, z: 1, itemStyle: { color: l.color }, tooltip: { show: false }, data: [[xs[0], scale * c.mean[0]]], renderItem: (params, api) => ({ type: "polygon", shape: { points: [...xs.map((x, i) => api.coord([x, scale * c.high[i]])), ...xs.map((x, i) => api.coord([x, scale * c.low[i]])).reverse()] }, style: { fill: l.color, opacity: 0.11 } }) });
        }
        return { legend: legend({ data: labels }), grid: { left: 58, right: 20, top: 42, bottom: 50 }, xAxis: axis(overs[state.over], { type: "value", scale: true, minInterval: state.over === "round" ? 1 : undefined }), yAxis: scoreAxis(unit + ", " + state.point), tooltip: tooltip({ trigger: "item", formatter: (p) => tip(p.seriesName, `round ${p.value[2]}`, `${state.point} ${score(p.value[1] / scale)}`, state.over === "round" ? "" : `${num(p.value[0])} ${state.over === "mb" ? "MB" : "s"}`) }), series };
      },
      rows: () => [["method", "round", "MB", "simulated s", state.point, "lowest seed", "highest seed", "bottom decile"], ...data.methods.flatMap((m) => { const c = m.curves[state.point]; return c.round.map((r, i) => [m.label, r, num(c.mb[i]), num(c.seconds[i]), score(c.mean[i]), score(c.low[i]), score(c.high[i]), score(c.decile[i])]); })],
    });
    choice(controls, "over", [["round", "rounds"], ["mb", "MB"], ["seconds", "seconds"]], state, "over", draw);
    choice(controls, "measured", [["pre", "before local training"], ["post", "after it"]], state, "point", draw);
  }

  /* ---- Pareto ---- */
  function pareto() {
    const part = section("pareto", "Score for bytes", null);
    const better = (a, b) => (data.higher ? a > b : a < b);
    const points = () => data.methods.filter((m) => m.pre && m.up + m.down > 0).map((m) => ({ label: m.label, mb: (m.up + m.down) / 1e6, pre: m.pre }));
    const wide = (list) => Math.max(...list.map((p) => p.mb)) > 20 * Math.min(...list.map((p) => p.mb));
    const front = () => points().sort((a, b) => a.mb - b.mb).reduce((kept, p) => (!kept.length || better(p.pre.mean, kept[kept.length - 1].pre.mean) ? [...kept, p] : kept), []);
    figure(part, "pareto", "The front: nobody scores more for fewer bytes", "Each mark is a method at its end; the line joins those that no other beats in both." + (hasAlone ? " The dashed line is training alone (" + data.alone + "), which sends nothing." : ""), {
      option: () => {
        const alone = method(data.alone), list = points();
        const means = [...list, ...(alone && alone.pre ? [alone] : [])].map((p) => scale * p.pre.mean);
        const [low, high] = around(means);
        const line = alone && alone.pre ? { silent: true, symbol: "none", lineStyle: { color: style("soft"), type: "dashed", width: 2 }, label: { formatter: "alone", color: style("soft"), position: "insideEndTop" }, data: [{ yAxis: scale * alone.pre.mean }] } : undefined;
        return {
          grid: { left: 58, right: 30, top: 24, bottom: 50 },
          xAxis: wide(list) ? axis("MB sent by all clients, up and down (log)", { type: "log", min: (v) => 10 ** Math.floor(Math.log10(v.min / 1.2)), max: (v) => 10 ** Math.ceil(Math.log10(v.max * 1.2)), axisLabel: { ...axisText(), formatter: (v) => num(v, 2) } }) : axis("MB sent by all clients, up and down", { type: "value", min: 0, max: (v) => 1.15 * v.max, axisLabel: { ...axisText(), formatter: (v) => num(v, 2) } }),
          yAxis: scoreAxis(unit + ", pre", { min: low, max: high }),
          tooltip: tooltip({ trigger: "item", formatter: (p) => tip(p.name, "pre " + withHalf(method(p.name).pre), num(p.value[0]) + " MB") }),
          series: [
            { type: "scatter", data: list.map((p) => { const l = look(p.label); return { name: p.label, value: [p.mb, scale * p.pre.mean], symbol: l.symbol, symbolSize: p.label === data.answer.method ? 20 : 14, itemStyle: { color: l.color } }; }), label: { show: true, formatter: "{b}", position: "top", color: style("ink"), fontSize: 12 }, labelLayout: { hideOverlap: true, moveOverlap: "shiftY" }, markLine: line, z: 3 },
            { type: "line", silent: true, symbol: "none", step: "end", lineStyle: { color: style("accent"), width: 1.5 }, data: front().map((p) => [p.mb, scale * p.pre.mean]), z: 2 },
            { type: "custom", silent: true, clip: true, data: list.filter((p) => known(p.pre.half)).map((p) => [p.mb, scale * (p.pre.mean - p.pre.half), scale * (p.pre.mean + p.pre.half)]), renderItem: (params, api) => { const a = api.coord([api.value(0), api.value(1)]), b = api.coord([api.value(0), api.value(2)]); return { type: "line", shape: { x1: a[0], y1: a[1], x2: b[0], y2: b[1] }, style: { stroke: style("soft"), lineWidth: 1.5 } }; } },
          ],
        };
      },
      rows: () => [["method", "MB", "pre", "on the front"], ...points().map((p) => [p.label, num(p.mb), withHalf(p.pre), front().some((f) => f.label === p.label) ? "yes" : "no"])],
    });
  }

  /* ---- privacy ---- */
  function privacy() {
    const all = data.methods.filter((m) => m.privacy && m.pre);
    if (!all.length) return;
    const part = section("privacy", "What privacy costs", "Epsilon bounds what all that a client sends, and its last model, tell about any one of its training rows; smaller is more private. Delta, the probability with which the bound may fail, is " + num(Math.max(...all.map((m) => m.privacy.delta))) + ".");
    const names = [...new Set(all.map((m) => m.privacy.method))];
    const of = (name) => all.filter((m) => m.privacy.method === name).sort((a, b) => a.privacy.largest - b.privacy.largest);
    const open = data.methods.filter((m) => !m.privacy && m.pre && names.includes(m.label.split(":")[0]));
    const shown = (name) => look(of(name)[0].label);
    figure(part, "epsilon", "Score over epsilon", "Each mark is a budget: the largest epsilon that a client has spent." + (open.length ? " Dashed lines are the same methods without a budget." : ""), {
      option: () => {
        const means = [...all, ...open].map((m) => scale * m.pre.mean), [low, high] = around(means);
        const series = names.map((name, i) => ({ type: "line", name, data: of(name).map((m) => ({ name: m.label, value: [m.privacy.largest, scale * m.pre.mean] })), symbol: shown(name).symbol, symbolSize: 12, lineStyle: { width: 2 }, itemStyle: { color: shown(name).color }, markLine: { silent: true, symbol: "none", label: { formatter: name + ", no budget", color: style("soft"), position: i % 2 ? "insideStartTop" : "insideEndTop" }, lineStyle: { type: "dashed", color: shown(name).color }, data: open.filter((m) => m.label.split(":")[0] === name).map((m) => ({ yAxis: scale * m.pre.mean })) } }));
        return { legend: legend({ data: names }), grid: { left: 58, right: 30, top: 42, bottom: 50 }, xAxis: axis("epsilon (log)", { type: "log", min: (v) => v.min / 1.5, max: (v) => v.max * 1.5, axisLabel: { ...axisText(), formatter: (v) => num(v, 2) } }), yAxis: scoreAxis(unit + ", pre", { min: low, max: high }), tooltip: tooltip({ formatter: (p) => tip(p.name, "epsilon " + num(p.value[0]), "pre " + withHalf(method(p.name).pre)) }), series };
      },
      rows: () => [["method", "epsilon", "delta", "pre"], ...names.flatMap((name) => of(name).map((m) => [m.label, num(m.privacy.largest), num(m.privacy.delta), withHalf(m.pre)])), ...open.map((m) => [m.label, "no budget", "–", withHalf(m.pre)])],
    });
    const state = { k: all[0].label };
    const spent = () => Object.entries(method(state.k).privacy.clients);
    const controls = node("div", { class: "controls" });
    part.append(controls);
    const draw = figure(part, "spent", "What each client has spent", "The ledger of every client: its epsilon over the whole run, the use of its last model included.", {
      option: () => ({ grid: { left: 58, right: 20, top: 20, bottom: 60 }, xAxis: axis("client", { type: "category", data: spent().map(([id]) => id), nameGap: 40, axisLabel: { ...axisText(), rotate: spent().length > 12 ? 60 : 0, hideOverlap: true } }), yAxis: axis("epsilon", { type: "value", nameGap: 42 }), tooltip: tooltip({ formatter: (p) => tip(p.name, "epsilon " + num(p.value)) }), series: [{ type: "bar", data: spent().map(([id, value]) => ({ name: id, value, itemStyle: { color: look(state.k).color } })) }] }),
      rows: () => [["client", ...all.map((m) => m.label)], ...spent().map(([id]) => [id, ...all.map((m) => num(m.privacy.clients[id]))])],
    });
    if (all.length > 1) select(controls, "of", all.map((m) => [m.label, m.label]), state, "k", draw);
  }

  /* ---- clients ---- */
  function clients() {
    const federated = labels.filter((l) => !data.ways.includes(l));
    if (!entries.length) return;
    const seeds = [...new Set(entries.map((e) => e.seed))];
    const state = { method: federated.includes(data.answer.method) ? data.answer.method : data.joined, seed: String(seeds[0]) };
    const part = section("clients", "Client by client", hasAlone && federated.length ? "Who gains by joining, and who loses: each client's score on its own test data, alone and federated." : "How the clients' data differ.");
    const controls = node("div", { class: "controls" });
    part.append(controls);
    const here = () => entries.filter((e) => String(e.seed) === state.seed);
    const redraw = [];
    const after = () => redraw.forEach((f) => f());
    if (hasAlone && federated.length) {
      select(controls, "method", federated.map((l) => [l, l]), state, "method", after);
      const both = (e) => known(e.scores[data.alone]) && known(e.scores[state.method]);
      const gain = (e) => (data.higher ? 1 : -1) * (e.scores[state.method] - e.scores[data.alone]);
      const pair = node("div", { class: "pair" });
      part.append(pair);
      redraw.push(figure(pair, "alone", "Alone against federated", "A mark above the diagonal is a client that " + (data.higher ? "gains" : "loses") + "; its area grows with the samples it trains on.", {
        option: () => {
          const list = here().filter(both), most = Math.max(...list.map((e) => e.train), 1);
          const values = list.flatMap((e) => [e.scores[data.alone], e.scores[state.method]]).map((v) => scale * v);
          const [low, high] = around(values);
          const mark = (won) => ({ type: "scatter", name: won ? "gains or stays" : "worse off", symbol: won ? "circle" : "triangle", itemStyle: { color: won ? style("good") : style("bad"), opacity: 0.75, borderColor: style("page"), borderWidth: 1 }, data: list.filter((e) => gain(e) >= 0 === won).map((e) => ({ name: name(e), value: [scale * e.scores[data.alone], scale * e.scores[state.method], e.train, gain(e)], symbolSize: 8 + 20 * Math.sqrt(e.train / most) })) });
          return { legend: legend(), grid: { left: 58, right: 20, top: 42, bottom: 50 }, xAxis: axis("alone (" + data.alone + "), " + unit, { type: "value", min: low, max: high, axisLabel: scoreText() }), yAxis: scoreAxis(state.method, { min: low, max: high }), tooltip: tooltip({ formatter: (p) => tip(p.name, "alone " + score(p.value[0] / scale), state.method + " " + score(p.value[1] / scale), signed(p.value[3]), p.value[2] + " training samples") }), series: [mark(true), mark(false), { type: "line", silent: true, symbol: "none", data: [[low, low], [high, high]], lineStyle: { color: style("soft"), type: "dashed", width: 1 } }] };
        },
        rows: () => [["client", "alone", state.method, "gain", "training samples"], ...here().filter(both).map((e) => [name(e), score(e.scores[data.alone]), score(e.scores[state.method]), signed(gain(e)), e.train])],
      }));
      const sorted = () => here().filter(both).sort((a, b) => gain(b) - gain(a));
      redraw.push(figure(pair, "gains", "Who gains, who loses", "The clients by their gain over training alone (" + data.alone + ").", {
        option: () => {
          const list = sorted();
          return { grid: { left: 58, right: 20, top: 20, bottom: 60 }, xAxis: axis("client", { type: "category", data: list.map((e) => e.id), nameGap: 40, axisLabel: { ...axisText(), rotate: list.length > 12 ? 60 : 0, hideOverlap: true } }), yAxis: scoreAxis(percent ? "points over alone" : "better than alone by", { scale: false }), tooltip: tooltip({ formatter: (p) => tip(p.name, signed(p.value / scale) + (percent ? " points" : "")) }), series: [{ type: "bar", data: list.map((e) => ({ name: name(e), value: scale * gain(e), itemStyle: { color: gain(e) >= 0 ? style("good") : style("bad"), decal: gain(e) < 0 ? { symbol: "rect", dashArrayX: [1, 0], dashArrayY: [3, 4], rotation: -0.7, color: style("page") } : undefined } })) }] };
        },
        rows: () => [["client", "gain"], ...sorted().map((e) => [name(e), signed(gain(e))])],
      }));
    }
    if (entries.some((e) => e.classes.length)) {
      const list = () => here().slice(0, 120);
      redraw.push(figure(part, "classes", "What the clients hold", "The share of each class among a client's training samples: how different the clients are.", {
        height: () => Math.max(phone() ? 340 : 380, 18 * list().length + 130),
        option: () => {
          const cells = list().flatMap((e, y) => { const total = e.classes.reduce((a, b) => a + b, 0) || 1; return e.classes.map((n, x) => [x, y, n / total, n]); });
          return heat(cells, data.classNames, list().map((e) => e.id), 0, Math.max(...cells.map((c) => c[2]), 0.01), "class", "", (p) => tip(`${list()[p.value[1]].id}, class ${data.classNames[p.value[0]]}`, `${p.value[3]} samples`, `${(100 * p.value[2]).toFixed(0)} % of the client's`), (v) => Math.round(100 * v) + " %");
        },
        rows: () => [["client", "samples", ...data.classNames], ...list().map((e) => [name(e), e.train, ...e.classes])],
      }));
    }
    if (seeds.length > 1) select(controls, "seed", seeds.map((s) => [s, s]), state, "seed", after);
    if (!controls.children.length) controls.remove();
  }

  function heat(cells, xs, ys, min, max, xName, yName, format, ends) {
    const few = xs.length * ys.length <= 400 && !phone();
    return {
      grid: { left: Math.min(120, 24 + 7 * Math.max(...ys.map((y) => String(y).length))), right: 16, top: 16, bottom: 92 },
      xAxis: axis(xName, { type: "category", data: xs, splitArea: { show: false }, nameGap: xs.length > 14 ? 44 : 28, axisLabel: { ...axisText(), rotate: xs.length > 14 || Math.max(...xs.map((x) => String(x).length)) > 4 ? 60 : 0, hideOverlap: true } }),
      yAxis: axis(yName, { type: "category", data: ys, inverse: true, nameGap: 40 }),
      visualMap: { type: "continuous", min, max, calculable: false, orient: "horizontal", left: "center", bottom: 0, itemHeight: 140, itemWidth: 12, inRange: { color: dark() ? RAMP_DARK : RAMP }, textStyle: { color: style("soft") }, text: [ends ? ends(max) : num(max), ends ? ends(min) : num(min)], dimension: 2 },
      tooltip: tooltip({ formatter: format }),
      series: [{ type: "heatmap", data: cells, label: { show: false }, itemStyle: few ? { borderColor: style("card"), borderWidth: 1 } : {}, emphasis: { itemStyle: { borderColor: style("focus"), borderWidth: 2 } } }],
    };
  }
  const square = (h) => h.values.flatMap((row, y) => row.map((v, x) => [x, y, v]));
  const span = (h) => { const off = h.values.flatMap((row, y) => row.filter((v, x) => x !== y && v !== null)); return off.length ? [Math.min(...off), Math.max(...off)] : [0, 1]; };
  function squareHeat(part, id, title, help, options) {
    /* options: [text, heat] pairs */
    const state = { k: "0" };
    const now = () => options[Number(state.k)][1];
    const controls = node("div", { class: "controls" });
    if (options.length > 1) part.append(controls);
    const draw = figure(part, id, title, help, {
      height: () => Math.max(phone() ? 360 : 420, Math.min(900, 16 * now().clients.length + 140)),
      option: () => { const h = now(), [low, high] = span(h); return heat(square(h), h.clients, h.clients, low, high, "client", "", (p) => tip(`${h.clients[p.value[1]]} and ${h.clients[p.value[0]]}`, num(p.value[2])), null); },
      rows: () => [["client", ...now().clients], ...now().values.map((row, i) => [now().clients[i], ...row.map((v) => num(v))])],
    });
    if (options.length > 1) select(controls, "of", options.map(([text], i) => [i, text]), state, "k", draw);
  }

  /* ---- what the models answered ---- */
  function answers() {
    const all = data.methods.filter((m) => m.answers);
    if (!all.length) return;
    const classes = all[0].answers.kind === "classes";
    const part = section("answers", "What the models answer", "For the test rows of all clients together, each row by its client's own model, in the first seed." + (classes && data.classNames.length > 2 ? " Each class is asked about by itself, and all these questions make one curve." : ""));
    const state = { k: data.answer.method, target: "0" };
    if (!all.some((m) => m.label === state.k)) state.k = all[0].label;
    const now = () => all.find((m) => m.label === state.k).answers;
    const controls = node("div", { class: "controls" });
    const redraw = [];
    const after = () => redraw.forEach((f) => f());
    const lines = (key, x, y, baseline) => {
      const series = all.filter((m) => m.answers[key].length).map((m) => { const l = look(m.label); return { type: "line", name: m.label, symbol: l.symbol, symbolSize: 6, showSymbol: key === "calibration", data: m.answers[key], lineStyle: { width: l.width, type: l.dash }, itemStyle: { color: l.color }, emphasis: { focus: "series" } }; });
      return { legend: legend({ data: series.map((s) => s.name) }), grid: { left: 58, right: 20, top: 42, bottom: 50 }, xAxis: axis(x, { type: "value", min: 0, max: 1 }), yAxis: axis(y, { type: "value", min: 0, max: 1, nameGap: 42 }), tooltip: tooltip({ formatter: (p) => tip(p.seriesName, `${x} ${num(p.value[0])}`, `${y} ${num(p.value[1])}`, p.value[2] ? p.value[2] + " rows" : "") }), series: [...series, { type: "line", silent: true, symbol: "none", data: baseline, lineStyle: { color: style("soft"), type: "dashed", width: 1 } }] };
    };
    const rows = (key, ...head) => [["method", ...head], ...all.flatMap((m) => m.answers[key].map((p) => [m.label, ...p.map((v) => num(v))]))];
    if (classes) {
      const pair = node("div", { class: "pair" }), second = node("div", { class: "pair" });
      part.append(pair, controls, second);
      const share = all[0].answers.share;
      if (all.some((m) => m.answers.roc.length)) {
        figure(pair, "roc", "ROC curve", "How many cases are found for how many false alarms, threshold by threshold. The dashed line is chance.", { option: () => lines("roc", "false positive rate", "sensitivity", [[0, 0], [1, 1]]), rows: () => rows("roc", "false positive rate", "sensitivity") });
        figure(pair, "recall", "Precision-recall curve", "How many of the answers \"yes\" are right, for how many cases found. The dashed line is chance: the share of cases.", { option: () => lines("recall", "recall", "precision", [[0, share], [1, share]]), rows: () => rows("recall", "recall", "precision") });
      }
      figure(second, "calibration", "Calibration", "How often what was given a probability came true. On the dashed line probabilities are what they say.", { option: () => lines("calibration", "probability", "came true", [[0, 0], [1, 1]]), rows: () => rows("calibration", "probability", "came true", "rows") });
      if (all[0].answers.confusion) {
        const names = data.classNames;
        const cells = () => now().confusion.flatMap((row, y) => { const total = row.reduce((a, b) => a + b, 0) || 1; return row.map((n, x) => [x, y, n / total, n]); });
        redraw.push(figure(second, "confusion", "Confusion matrix", "Rows by true class and by answer; the shade is the share of the true class.", {
          option: () => { const shown = heat(cells(), names, names, 0, 1, "answer", "true class", (p) => tip(`${names[p.value[1]]}, answered ${names[p.value[0]]}`, `${p.value[3]} rows`, `${(100 * p.value[2]).toFixed(0)} % of the class`), (v) => Math.round(100 * v) + " %"); shown.series[0].label = { show: names.length <= 12, formatter: (p) => p.value[3] }; return shown; },
          rows: () => [["true class", ...names], ...now().confusion.map((row, i) => [names[i], ...row])],
        }));
        select(controls, "confusion matrix of", all.map((m) => [m.label, m.label]), state, "k", after);
      }
      return;
    }
    part.append(controls);
    const pair = node("div", { class: "pair" });
    part.append(pair);
    const points = () => now().pairs[Number(state.target)];
    const dots = (list) => ({ type: "scatter", symbolSize: 6, itemStyle: { color: look(state.k).color, opacity: 0.6 }, data: list });
    redraw.push(figure(pair, "predicted", "Predicted against true", "Each mark is a test row. On the diagonal the prediction is right.", {
      option: () => { const list = points(), [low, high] = ends(list.flat()); return { grid: { left: 64, right: 20, top: 20, bottom: 50 }, xAxis: axis("true", { type: "value", min: low, max: high }), yAxis: axis("predicted", { type: "value", min: low, max: high, nameGap: 48 }), tooltip: tooltip({ formatter: (p) => tip("true " + num(p.value[0], 4), "predicted " + num(p.value[1], 4)) }), series: [dots(list), { type: "line", silent: true, symbol: "none", data: [[low, low], [high, high]], lineStyle: { color: style("soft"), type: "dashed", width: 1 } }] }; },
      rows: () => [["true", "predicted"], ...points().map((p) => p.map((v) => num(v, 4)))],
    }));
    redraw.push(figure(pair, "residuals", "Residuals", "True minus predicted, by what was predicted. A pattern is something that the models have not learnt.", {
      option: () => { const list = points().map(([t, p]) => [p, t - p]); return { grid: { left: 64, right: 20, top: 20, bottom: 50 }, xAxis: axis("predicted", { type: "value", scale: true }), yAxis: axis("true minus predicted", { type: "value", nameGap: 48 }), tooltip: tooltip({ formatter: (p) => tip("predicted " + num(p.value[0], 4), "off by " + num(p.value[1], 4)) }), series: [dots(list)] }; },
      rows: () => [["predicted", "true minus predicted"], ...points().map(([t, p]) => [num(p, 4), num(t - p, 4)])],
    }));
    select(controls, "method", all.map((m) => [m.label, m.label]), state, "k", after);
    if (all[0].answers.pairs.length > 1) select(controls, "target", all[0].answers.pairs.map((_, i) => [i, i + 1]), state, "target", after);
  }

  /* ---- who is like whom ---- */
  function collaboration() {
    const heats = data.methods.flatMap((m) => m.heats.map((h) => [`${m.label}: ${h.name}, ${h.part}`, h]));
    const edgesOf = (h) => {
      const found = new Map();
      h.values.forEach((row, i) => row.map((v, j) => [v, j]).filter(([v, j]) => j !== i && v > 0).sort((a, b) => b[0] - a[0]).slice(0, 3).forEach(([v, j]) => found.set(Math.min(i, j) + "-" + Math.max(i, j), [h.clients[Math.min(i, j)], h.clients[Math.max(i, j)], v])));
      return [...found.values()];
    };
    const graphs = [
      ...data.methods.flatMap((m) => m.graphs.map((g) => [`${m.label}: ${g.name}`, g, m])),
      ...data.methods.flatMap((m) => m.heats.map((h) => [`${m.label}: the three most alike, ${h.part}`, { clients: h.clients, edges: edgesOf(h) }, m])),
    ];
    if (!graphs.length && !heats.length) return;
    const part = section("together", "Who learns with whom", "What methods that look for similar clients have found. It is of the first seed.");
    if (graphs.length) {
      const state = { k: "0" };
      const controls = node("div", { class: "controls" });
      if (graphs.length > 1) part.append(controls);
      const draw = figure(part, "graph", "The collaboration graph", "A line joins two clients that learn from each other; the wider, the more. Marks grow with the training samples.", {
        height: () => (phone() ? 360 : 520),
        option: () => {
          const [, g, m] = graphs[Number(state.k)];
          const of = new Map(entries.filter((e) => e.seed === null || e.seed === m.seeds[0]).map((e) => [e.id, e]));
          const most = Math.max(...g.edges.map((e) => e[2]), 1e-9), train = Math.max(...[...of.values()].map((e) => e.train), 1);
          const top = (e) => (e && e.classes.length ? e.classes.indexOf(Math.max(...e.classes)) : -1);
          return {
            tooltip: tooltip({ formatter: (p) => (p.dataType === "edge" ? tip(`${p.data.source} and ${p.data.target}`, num(p.data.value)) : tip(p.name, of.get(p.name) ? of.get(p.name).train + " training samples" : "", top(of.get(p.name)) >= 0 ? "most of class " + data.classNames[top(of.get(p.name))] : "")) }),
            series: [{ type: "graph", layout: "circular", circular: { rotateLabel: true }, roam: false, data: g.clients.map((c) => ({ id: c, name: c, symbolSize: 10 + 18 * Math.sqrt((of.get(c) ? of.get(c).train : train / 4) / train), itemStyle: { color: style("accent") } })), links: g.edges.map(([a, b, w]) => ({ source: a, target: b, value: w, lineStyle: { width: 1 + 5 * (w / most), opacity: 0.25 + 0.6 * (w / most) } })), label: { show: g.clients.length <= 60, color: style("ink"), position: "right" }, lineStyle: { color: style("soft"), curveness: 0.15 }, emphasis: { focus: "adjacency" }, left: 60, right: 60, top: 50, bottom: 50 }],
          };
        },
        rows: () => [["client", "client", "weight"], ...graphs[Number(state.k)][1].edges.map(([a, b, w]) => [a, b, num(w)])],
      });
      if (graphs.length > 1) select(controls, "of", graphs.map(([text], i) => [i, text]), state, "k", draw);
    }
    if (heats.length) squareHeat(part, "similarity", "Similarity of clients", "How alike the updates of two clients are.", heats);
  }

  function sparse() {
    const masks = data.methods.filter((m) => m.masks).map((m) => [m.label, m.masks]);
    const gates = data.methods.filter((m) => m.gates);
    if (!masks.length && !gates.length) return;
    const part = section("sparse", "Sparse models", "Of the first seed.");
    if (masks.length) squareHeat(part, "masks", "Overlap of masks", "Of the weights that either of two clients keeps, the share that both keep.", masks);
    if (gates.length) {
      const m = gates[0], g = m.gates;
      const joints = () => g.x.flatMap((xs, i) => [...xs.map((x, k) => [x, g.y[i][k]]), [null, null]]);
      figure(part, "gates", "Gate dendrogram: " + m.label, "Clients whose gates choose alike parts of the model are joined low (Ward's distance).", {
        option: () => ({
          grid: { left: 58, right: 20, top: 16, bottom: 70 },
          xAxis: { type: "value", min: 0, max: 10 * g.leaves.length, show: false },
          yAxis: axis("Ward's distance", { type: "value", nameGap: 42 }),
          tooltip: tooltip({ formatter: (p) => (p.seriesType === "scatter" ? tip(p.name) : tip("joined at", num(p.value[1]))) }),
          series: [
            { type: "scatter", symbolSize: 9, itemStyle: { color: style("accent") }, data: g.leaves.map((c, i) => ({ name: c, value: [10 * i + 5, 0] })), label: { show: true, formatter: "{b}", position: "bottom", rotate: g.leaves.length > 16 ? 60 : 0, color: style("ink"), distance: 8 } },
            { type: "line", data: joints(), connectNulls: false, symbol: "none", lineStyle: { color: style("ink"), width: 1.5 } },
          ],
        }),
        rows: () => [["joint", "height"], ...g.y.map((y, i) => [i + 1, num(Math.max(...y))])],
      });
    }
  }

  /* ---- bytes ---- */
  function ledger() {
    const part = section("bytes", "Where the bytes go", null);
    const kinds = [["values", "values"], ["positions", "positions"], ["header", "headers"]];
    const list = () => data.methods.filter((m) => m.up + m.down > 0);
    if (!list().length) { part.append(node("p", {}, "Nothing was sent.")); return; }
    const rowsOf = () => list().flatMap((m) => ["up", "down"].map((way) => [m, way]));
    figure(part, "ledger", "Bytes by kind", "What all clients together sent (up) and received (down) in a run: numbers, where they stand in the model, and the frame around them.", {
      height: () => Math.max(300, 30 * rowsOf().length + 110),
      option: () => {
        const palette = dark() ? DARK : LIGHT, rows = rowsOf();
        return { legend: legend(), grid: { left: phone() ? 110 : 150, right: 24, top: 40, bottom: 50 }, xAxis: axis("MB", { type: "value" }), yAxis: { ...axis("", { type: "category", inverse: true, data: rows.map(([m, way]) => `${m.label}, ${way}`) }), axisLabel: { ...axisText(), width: phone() ? 100 : 140, overflow: "truncate" } }, tooltip: tooltip({ formatter: (p) => tip(p.name, `${p.seriesName} ${size(1e6 * p.value)}`) }), series: kinds.map(([key, text], i) => ({ type: "bar", stack: "bytes", name: text, itemStyle: { color: palette[i], decal: [undefined, { symbol: "rect", dashArrayX: [1, 0], dashArrayY: [2, 5], rotation: 0.8, color: style("card") }, { symbol: "circle", symbolSize: 0.6, color: style("card") }][i] }, data: rows.map(([m, way]) => ({ name: `${m.label}, ${way}`, value: m.ledger[way][key] / 1e6 })) })) };
      },
      rows: () => [["", ...kinds.map(([, text]) => text), "total"], ...rowsOf().map(([m, way]) => [`${m.label}, ${way}`, ...kinds.map(([key]) => size(m.ledger[way][key])), size(kinds.reduce((sum, [key]) => sum + m.ledger[way][key], 0))])],
    });
  }

  function provenance() {
    const part = section("provenance", "Experiment and environment", "Save a text below as experiment.toml and run it with sparsona run experiment.toml.");
    for (const [label, text] of Object.entries(data.experiments)) part.append(node("details", {}, node("summary", {}, "Experiment file: " + label), node("pre", {}, text)));
    part.append(node("details", { open: true }, node("summary", {}, "Environment"), node("div", { class: "scroll" }, table(["", ""], Object.entries(data.environment)))));
  }

  /* ---- light and dark ---- */
  const system = window.matchMedia("(prefers-color-scheme: dark)");
  let chosen = "system";
  function paint() {
    document.documentElement.dataset.theme = chosen === "system" ? (system.matches ? "dark" : "light") : chosen;
    byId("theme").textContent = "Colours: " + chosen;
    byId("theme").setAttribute("aria-label", "Colours: " + chosen + ". Press to change.");
    Object.values(drawers).forEach((draw) => draw());
  }
  byId("theme").addEventListener("click", () => {
    chosen = { system: "light", light: "dark", dark: "system" }[chosen];
    paint();
  });
  system.addEventListener("change", paint);

  answer();
  comparison();
  curves();
  pareto();
  privacy();
  clients();
  answers();
  collaboration();
  sparse();
  ledger();
  provenance();
  paint();
  let waiting = 0;
  window.addEventListener("resize", () => { clearTimeout(waiting); waiting = setTimeout(() => Object.values(drawers).forEach((draw) => draw()), 120); });
  window.sparsona = { charts, data };
})();
