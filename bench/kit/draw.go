package kit

import (
	"bytes"
	"image/color"
	"os"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	_ "gonum.org/v1/plot/vg/vgimg" // PNG
	_ "gonum.org/v1/plot/vg/vgsvg" // SVG
)

// The size of a plot, and of the legend below it.
const (
	plotWidth  = 18 * vg.Centimeter
	plotHeight = 10 * vg.Centimeter
	plotEdge   = 3 * vg.Millimeter // without it, labels at the edge are cut
	legendLine = 14 * vg.Millimeter / 3
)

// legendCols is how many names fit beside each other in the legend.
func (p Plot) legendCols() int {
	longest := 0
	for _, s := range p.Series {
		longest = max(longest, len(s.Name))
	}
	switch {
	case longest > 28:
		return 2
	case longest > 18:
		return 3
	}
	return 4
}

// save writes the plot as PNG and SVG.
func (p Plot) save(stem string) error {
	legend := vg.Length((len(p.Series)+p.legendCols()-1)/p.legendCols())*legendLine + plotEdge
	for _, kind := range []string{"png", "svg"} {
		c, err := draw.NewFormattedCanvas(plotWidth, plotHeight+legend, kind)
		if err != nil {
			return err
		}
		area := draw.New(c)
		area.SetColor(color.White)
		area.Fill(area.Rectangle.Path())
		p.figure().Draw(draw.Crop(area, plotEdge, -plotEdge, legend+plotEdge, -plotEdge))
		p.legend(draw.Crop(area, plotEdge*4, -plotEdge, plotEdge, legend-area.Max.Y))
		var b bytes.Buffer
		if _, err := c.WriteTo(&b); err != nil {
			return err
		}
		if err := os.WriteFile(stem+"."+kind, b.Bytes(), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// legend draws the names of the series in columns.
func (p Plot) legend(c draw.Canvas) {
	cols := p.legendCols()
	width := (c.Max.X - c.Min.X) / vg.Length(cols)
	for i, s := range p.Series {
		l := plot.NewLegend()
		l.Top, l.Left, l.ThumbnailWidth = true, true, 20
		l.Add(s.Name, p.plotters(i)[0].(plot.Thumbnailer))
		cell := c
		cell.Min.X += vg.Length(i%cols) * width
		cell.Max.X = cell.Min.X + width
		cell.Max.Y -= vg.Length(i/cols) * legendLine
		l.Draw(cell)
	}
}

// plotters draw a series.
func (p Plot) plotters(i int) []plot.Plotter {
	if len(p.Groups) > 0 {
		return []plot.Plotter{bars{p, i}}
	}
	return []plot.Plotter{line{p, i}}
}

// figure is the plot without its legend.
func (p Plot) figure() *plot.Plot {
	f := plot.New()
	f.Title.Text, f.X.Label.Text, f.Y.Label.Text = p.Title, p.X, p.Y
	f.Title.Padding = plotEdge
	grid := plotter.NewGrid()
	grid.Horizontal.Color, grid.Vertical.Color = color.Gray{0xdd}, color.Gray{0xdd}
	if len(p.Groups) > 0 {
		grid.Vertical.Width = 0
	}
	f.Add(grid)
	f.Y.Tick.Marker, f.X.Tick.Marker = ticks{p.LogY}, ticks{p.LogX}
	for i := range p.Series {
		f.Add(p.plotters(i)...)
	}
	if p.Level > 0 {
		l := plotter.NewFunction(func(float64) float64 { return p.Level })
		l.Width, l.Dashes = vg.Points(1), []vg.Length{4, 3}
		f.Add(l)
	}
	f.Y.Min, f.Y.Max = p.limits()
	if p.LogY {
		f.Y.Scale = plot.LogScale{}
		f.Y.Label.Text += ", log scale"
	}
	if p.LogX {
		f.X.Scale = plot.LogScale{}
	}
	if len(p.Ticks) > 0 {
		f.X.Tick.Marker = fixed(p.Ticks)
	}
	if p.Mark {
		f.Add(upright{})
	}
	if len(p.Groups) > 0 {
		f.NominalX(p.Groups...)
		f.X.Min, f.X.Max = -0.5, float64(len(p.Groups))-0.5
		if len(p.Groups) > 6 {
			f.X.Tick.Label.Font.Size = vg.Points(8)
		}
	}
	return f
}

// upright draws a dashed line at X = 0.
type upright struct{}

// Plot implements plot.Plotter.
func (upright) Plot(c draw.Canvas, f *plot.Plot) {
	x, _ := f.Transforms(&c)
	c.StrokeLine2(draw.LineStyle{Color: color.Gray{0x55}, Width: 1, Dashes: []vg.Length{4, 3}}, x(0), c.Min.Y, x(0), c.Max.Y)
}
