// Lines over the last five minutes, with what they say now in words.

import { h, say, svg } from "./parts.js";

const SPAN_S = 300, GAP_S = 10;
const WIDTH = 300, HEIGHT = 92, LEFT = 2, BOTTOM = 14, TOP = 12;

/** The least of 1, 2 and 5 times a power of ten that is no less. */
function ceiling(value) {
  if (!(value > 0)) return 1;
  const power = 10 ** Math.floor(Math.log10(value));
  return [1, 2, 5, 10].map((step) => step * power).find((step) => step >= value * 0.9999);
}

export class Chart {
  /** `lines`: name, class and what each reads of a point; `format`: how a value reads. */
  constructor(figure, title, lines, format) {
    this.lines = lines;
    this.format = format;
    this.caption = figure.appendChild(h("figcaption", {}, h("span", {}, title)));
    this.values = lines.map(({ name, look }) => {
      const value = h("b");
      this.caption.append(h("span", {}, h("i", { class: look }), name ? `${name} ` : "", value));
      return value;
    });
    this.paths = lines.map(({ look }) => svg("path", { class: look, "vector-effect": "non-scaling-stroke" }));
    const axis = svg("line", { class: "axis", x1: LEFT, x2: WIDTH, y1: HEIGHT - BOTTOM, y2: HEIGHT - BOTTOM });
    const roof = svg("line", { class: "axis", x1: LEFT, x2: WIDTH, y1: TOP, y2: TOP });
    figure.append(svg("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none", "aria-hidden": "true" },
      axis, roof, ...this.paths), this.axis());
  }

  /** Outside of what is stretched. */
  axis() {
    this.scale = h("span", { class: "quiet" });
    return h("figcaption", { class: "axes" }, h("span", {}, "5 min ago"), this.scale, h("span", {}, "now"));
  }

  draw(points) {
    const now = points.length ? points[points.length - 1].time : 0;
    const shown = points.filter((point) => point.time > now - SPAN_S);
    const most = ceiling(Math.max(0, ...shown.flatMap((point) => this.lines.map(({ read }) => read(point) ?? 0))));
    say(this.scale, `from 0 to ${this.format(most)}`);
    this.lines.forEach(({ read }, index) => {
      const last = shown.length ? read(shown[shown.length - 1]) : null;
      say(this.values[index], last === null ? "none" : this.format(last));
      this.paths[index].setAttribute("d", this.path(shown, read, now, most));
    });
  }

  path(points, read, now, most) {
    let drawn = "", before = null;
    for (const point of points) {
      const value = read(point);
      if (value === null) { before = null; continue; }
      const x = WIDTH - ((now - point.time) / SPAN_S) * (WIDTH - LEFT);
      const y = HEIGHT - BOTTOM - (value / most) * (HEIGHT - BOTTOM - TOP);
      drawn += `${before !== null && point.time - before < GAP_S ? "L" : "M"}${x.toFixed(1)} ${y.toFixed(1)}`;
      before = point.time;
    }
    return drawn;
  }
}
