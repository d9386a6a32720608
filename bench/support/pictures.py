# SPDX-License-Identifier: Apache-2.0
"""A picture of one workload: a bar a server, as SVG text."""
from xml.sax.saxutils import escape

WIDTH, ROW, LEFT, RIGHT, TOP = 720, 26, 160, 190, 44
STYLE = ("text{font:13px sans-serif;fill:#222}.title{font-weight:bold}.bar{fill:#9db4c8}.ours{fill:#2a6f4e}.ceiling{fill:#dddddd}"
         "@media(prefers-color-scheme:dark){text{fill:#ddd}.ceiling{fill:#555}}")


def bars(title, unit, rows):
    """rows: (name, value, remark); a bar is as long as its share of the largest value."""
    largest = max((value for _name, value, _remark in rows), default=1) or 1
    height = TOP + ROW * len(rows) + 10
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" viewBox="0 0 {WIDTH} {height}">',
             f"<style>{STYLE}</style>", f'<text class="title" x="8" y="22">{escape(title)}, {escape(unit)}</text>']
    for i, (name, value, remark) in enumerate(rows):
        y = TOP + ROW * i
        length = (WIDTH - LEFT - RIGHT) * value / largest
        kind = "ours" if name == "varve" else "ceiling" if name.startswith("null") else "bar"
        parts.append(f'<text x="{LEFT - 8}" y="{y + 14}" text-anchor="end">{escape(name)}</text>')
        parts.append(f'<rect class="{kind}" x="{LEFT}" y="{y}" width="{max(length, 1):.1f}" height="{ROW - 8}"/>')
        parts.append(f'<text x="{LEFT + length + 6:.1f}" y="{y + 14}">{value:,.0f}  ({escape(remark)})</text>')
    return "\n".join(parts + ["</svg>", ""])
