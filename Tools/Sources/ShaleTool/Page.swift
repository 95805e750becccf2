/// A self-contained HTML page without scripts, which is also well-formed XML.
struct Page {
    private let title: String
    private var body = ""

    init(about cache: String) {
        title = "\(cache): Shale cache"
        add("<h1>\(Page.escaped(cache))</h1>")
    }

    mutating func add(_ html: String) { body += html + "\n" }

    mutating func section(_ title: String, _ note: String? = nil) {
        add("<h2>\(Page.escaped(title))</h2>")
        if let note { paragraph(note) }
    }

    mutating func paragraph(_ text: String) { add("<p>\(Page.escaped(text))</p>") }

    /// The main figures.
    mutating func tiles(_ tiles: [(name: String, value: String)]) {
        let items = tiles.map { "<div><dt>\(Page.escaped($0.name))</dt><dd>\(Page.escaped($0.value))</dd></div>" }
        add("<dl class=\"tiles\">\(items.joined())</dl>")
    }

    /// The first row has the column names. All columns but the first are numbers.
    mutating func table(_ rows: [[String]]) {
        func cells(_ row: [String], _ tag: String) -> String {
            row.map { "<\(tag)>\(Page.escaped($0))</\(tag)>" }.joined()
        }
        let head = rows.prefix(1).map { "<thead><tr>\(cells($0, "th"))</tr></thead>" }.joined()
        let rest = rows.dropFirst().map { "<tr>\(cells($0, "td"))</tr>" }.joined()
        add("<div class=\"wide\"><table>\(head)<tbody>\(rest)</tbody></table></div>")
    }

    var text: String {
        """
        <!DOCTYPE html>
        <html lang="en">
        <head>
        <meta charset="utf-8"/>
        <meta name="viewport" content="width=device-width, initial-scale=1"/>
        <meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'"/>
        <title>\(Page.escaped(title))</title>
        <style>
        \(Page.style)</style>
        </head>
        <body>
        <main>
        \(body)</main>
        </body>
        </html>

        """
    }

    static func escaped(_ text: String) -> String {
        var escaped = ""
        for scalar in text.unicodeScalars {
            switch scalar {
            case "&": escaped += "&amp;"
            case "<": escaped += "&lt;"
            case ">": escaped += "&gt;"
            case "\"": escaped += "&quot;"
            // XML does not permit other control characters.
            case _ where scalar.value < 32 && scalar != "\n": escaped += "\u{FFFD}"
            default: escaped.unicodeScalars.append(scalar)
            }
        }
        return escaped
    }

    /// Follows the system's light or dark mode.
    private static let style = """
        :root {
          color-scheme: light dark;
          --back: #ffffff; --raised: #f3f4f6; --text: #1b1f24; --quiet: #57606a; --line: #d0d7de;
          --first: #0b62c4; --second: #b35900; --third: #1a7f37;
        }
        @media (prefers-color-scheme: dark) {
          :root {
            --back: #0f1318; --raised: #1b2129; --text: #e6edf3; --quiet: #9aa5b1; --line: #353d47;
            --first: #6cb0ff; --second: #ffa657; --third: #56d364;
          }
        }
        * { box-sizing: border-box; }
        body { margin: 0; background: var(--back); color: var(--text); font: 16px/1.5 system-ui, sans-serif; }
        main { max-width: 1080px; margin: 0 auto; padding: 24px 16px 48px; }
        h1 { font-size: 1.5rem; margin: 0; overflow-wrap: anywhere; }
        h2 { font-size: 1.15rem; margin: 40px 0 8px; }
        p { margin: 4px 0 12px; color: var(--quiet); overflow-wrap: anywhere; }
        .tiles { display: grid; grid-template-columns: repeat(auto-fit, minmax(145px, 1fr)); gap: 12px; margin: 16px 0; }
        .tiles div { background: var(--raised); border-radius: 8px; padding: 10px 14px; }
        dt { color: var(--quiet); font-size: .85rem; }
        dd { margin: 0; font-size: 1.3rem; font-variant-numeric: tabular-nums; }
        .charts { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 420px), 1fr)); gap: 28px 32px; }
        figure { margin: 0; min-width: 0; }
        figcaption { font-weight: 600; margin-bottom: 6px; }
        .legend { display: flex; flex-wrap: wrap; gap: 0 16px; color: var(--quiet); font-size: .85rem; }
        .legend svg { width: 24px; height: 8px; margin-right: 6px; }
        .plot { display: grid; grid-template-columns: max-content 1fr; gap: 4px 8px; margin-top: .8em; font-size: .8rem; color: var(--quiet); }
        .plot > svg { width: 100%; height: 150px; overflow: visible; }
        .axis { display: flex; justify-content: space-between; font-variant-numeric: tabular-nums; }
        .axis.y { flex-direction: column; align-items: flex-end; height: calc(150px + 1.5em); margin: -0.75em 0; }
        .axis.x { grid-column: 2; margin-top: .5em; }
        .bars { display: grid; grid-template-columns: max-content 1fr max-content; gap: 4px 10px; margin-top: 6px; align-items: center; font-size: .9rem; font-variant-numeric: tabular-nums; }
        .bars svg { width: 100%; height: 14px; }
        .bars span:nth-child(3n) { text-align: right; }
        path { fill: none; vector-effect: non-scaling-stroke; stroke-width: 2; stroke-linecap: round; stroke-linejoin: round; }
        path.grid { stroke: var(--line); stroke-width: 1; }
        .first { stroke: var(--first); } .second { stroke: var(--second); stroke-dasharray: 7 4; } .third { stroke: var(--third); stroke-dasharray: 1 4; }
        rect { stroke: none; } rect.first { fill: var(--first); } rect.second { fill: var(--second); } rect.back { fill: var(--raised); }
        .wide { overflow-x: auto; }
        table { border-collapse: collapse; width: 100%; font-size: .9rem; font-variant-numeric: tabular-nums; }
        th, td { text-align: right; padding: 4px 8px; border-bottom: 1px solid var(--line); white-space: nowrap; }
        th:first-child, td:first-child { text-align: left; padding-left: 0; white-space: normal; }
        th { color: var(--quiet); font-weight: 600; }

        """
}

/// SVG charts that fill the available width. Labels are outside the SVG, which would stretch them.
enum Chart {
    struct Series {
        let name: String
        /// Nil: the line has a gap.
        let values: [Double?]
    }

    private static let classes = ["first", "second", "third"]
    private static let width = 1000.0, height = 100.0

    /// At most three lines over a time axis. `top`: the upper end of the value axis; nil: a round number above all
    /// values.
    static func lines(
        _ title: String, _ series: [Series], seconds: [Double], top: Double? = nil, text: (Double) -> String
    ) -> String {
        let largest = top ?? round(above: series.flatMap { $0.values.compactMap(\.self) }.max() ?? 0)
        let end = max(seconds.last ?? 0, .leastNonzeroMagnitude)
        var drawn = "<path class=\"grid\" d=\"M0 0H1000M0 50H1000M0 100H1000\"/>"
        for (line, style) in zip(series, classes) {
            var path = "", isOn = false
            for (time, value) in zip(seconds, line.values) {
                guard let value else {
                    isOn = false
                    continue
                }
                let point = "\(decimal(time / end * width)) \(decimal(height - value / largest * height))"
                // A single point is a line of length 0.
                path += isOn ? "L\(point)" : "M\(point)L\(point)"
                isOn = true
            }
            drawn += "<path class=\"\(style)\" d=\"\(path)\"/>"
        }
        return """
            <figure><figcaption>\(Page.escaped(title))</figcaption>\
            \(series.count > 1 ? legend(series.map(\.name)) : "")<div class="plot">\
            <div class="axis y"><span>\(text(largest))</span><span>\(text(largest / 2))</span><span>\(text(0))</span></div>\
            <svg viewBox="0 0 1000 100" preserveAspectRatio="none" role="img" aria-label="\(Page.escaped(title))">\
            \(drawn)</svg>\
            <div class="axis x"><span>0 s</span><span>\(decimal(end / 2)) s</span><span>\(decimal(end)) s</span></div>\
            </div></figure>
            """
    }

    /// 2, 4, 10, 20, and so on, so that its half is a whole number.
    private static func round(above value: Double) -> Double {
        var power = 1.0
        while power * 10 < value { power *= 10 }
        return power * ([2.0, 4, 10].first { power * $0 >= value } ?? 10)
    }

    /// A bar for each row. `parts` are at most two fractions of the whole width, stacked.
    static func bars(_ title: String, parts: [String] = [], _ rows: [(name: String, parts: [Double], value: String)])
        -> String
    {
        let drawn = rows.map { row in
            var start = 0.0, bars = "<rect class=\"back\" width=\"100%\" height=\"100%\"/>"
            for (part, style) in zip(row.parts, classes) {
                bars += """
                    <rect class="\(style)" x="\(decimal(start * 100))%" width="\(decimal(part * 100))%" height="100%"/>
                    """
                start += part
            }
            return """
                <span>\(Page.escaped(row.name))</span><svg role="img" aria-label="\(Page.escaped(row.name))">\(bars)</svg>\
                <span>\(Page.escaped(row.value))</span>
                """
        }
        return """
            <figure><figcaption>\(Page.escaped(title))</figcaption>\(parts.isEmpty ? "" : legend(parts, filled: true))\
            <div class="bars">\(drawn.joined())</div></figure>
            """
    }

    private static func legend(_ names: [String], filled: Bool = false) -> String {
        let items = zip(names, classes).map { name, style in
            let sample =
                filled
                ? "<rect class=\"\(style)\" width=\"24\" height=\"8\"/>" : "<path class=\"\(style)\" d=\"M1 4H23\"/>"
            return "<span><svg viewBox=\"0 0 24 8\">\(sample)</svg>\(Page.escaped(name))</span>"
        }
        return "<div class=\"legend\">\(items.joined())</div>"
    }
}
