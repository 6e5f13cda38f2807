package kit

import (
	"image/color"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// inks are colours that people with colour blindness can tell apart (Okabe and Ito), in an order in
// which neighbours also differ in grey.
var inks = []color.RGBA{
	{0x00, 0x72, 0xb2, 0xff}, {0xe6, 0x9f, 0x00, 0xff}, {0x99, 0x99, 0x99, 0xff}, {0x56, 0xb4, 0xe9, 0xff},
	{0xd5, 0x5e, 0x00, 0xff}, {0x00, 0x9e, 0x73, 0xff}, {0xcc, 0x79, 0xa7, 0xff}, {0xf0, 0xe4, 0x42, 0xff},
}

// dots and dashes tell lines apart without their colours.
var (
	dots   = []draw.GlyphDrawer{draw.CircleGlyph{}, draw.SquareGlyph{}, draw.TriangleGlyph{}, draw.RingGlyph{}, draw.BoxGlyph{}, draw.PyramidGlyph{}, draw.CrossGlyph{}, draw.PlusGlyph{}}
	dashes = [][]vg.Length{nil, {6, 3}, {2, 2}, {8, 2, 2, 2}, nil, {6, 3}, {2, 2}, {8, 2, 2, 2}}
)

// bars draws the i-th series of a plot as a bar in each group, from the bottom of the axis, with a
// whisker from the minimum to the maximum of the rounds.
type bars struct {
	p Plot
	i int
}

// groupShare is the part of the width of a group that its bars take.
const groupShare = 0.8

// Plot implements plot.Plotter.
func (b bars) Plot(c draw.Canvas, f *plot.Plot) {
	x, y := f.Transforms(&c)
	n := float64(len(b.p.Series))
	edge := draw.LineStyle{Color: color.Black, Width: vg.Points(0.4)}
	whisker := draw.LineStyle{Color: color.Black, Width: vg.Points(0.9)}
	for _, at := range b.p.Series[b.i].Points {
		if at.Y.Median < f.Y.Min {
			continue // nothing can be shown of it on a logarithmic axis
		}
		left := at.X - groupShare/2 + groupShare*float64(b.i)/n
		x0, x1 := x(left), x(left+groupShare/n)
		path := rect(x0, y(f.Y.Min), x1, y(at.Y.Median))
		c.SetColor(inks[b.i%len(inks)])
		c.Fill(path)
		c.SetLineStyle(edge)
		c.Stroke(path)
		if at.Y.Max > at.Y.Min {
			low, high := max(at.Y.Min, f.Y.Min), min(at.Y.Max, f.Y.Max)
			middle, cap := (x0+x1)/2, min((x1-x0)/4, 3)
			c.StrokeLine2(whisker, middle, y(low), middle, y(high))
			c.StrokeLine2(whisker, middle-cap, y(low), middle+cap, y(low))
			c.StrokeLine2(whisker, middle-cap, y(high), middle+cap, y(high))
		}
	}
}

// Thumbnail implements plot.Thumbnailer.
func (b bars) Thumbnail(c *draw.Canvas) {
	path := rect(c.Min.X, c.Min.Y, c.Max.X, c.Max.Y)
	c.SetColor(inks[b.i%len(inks)])
	c.Fill(path)
	c.SetLineStyle(draw.LineStyle{Color: color.Black, Width: vg.Points(0.4)})
	c.Stroke(path)
}

// line draws the i-th series of a plot as a line with dots, over a shade from the minimum to the
// maximum of the rounds.
type line struct {
	p Plot
	i int
}

// manyPoints is the number of points from which on a line has no dots.
const manyPoints = 40

func (l line) style() draw.LineStyle {
	return draw.LineStyle{Color: inks[l.i%len(inks)], Width: vg.Points(1.4), Dashes: dashes[l.i%len(dashes)]}
}

func (l line) dot() draw.GlyphStyle {
	return draw.GlyphStyle{Color: inks[l.i%len(inks)], Radius: vg.Points(2.6), Shape: dots[l.i%len(dots)]}
}

// Plot implements plot.Plotter.
func (l line) Plot(c draw.Canvas, f *plot.Plot) {
	x, y := f.Transforms(&c)
	var middle, low, high []vg.Point
	spread := false
	for _, at := range l.p.Series[l.i].Points {
		if at.Y.Median < f.Y.Min {
			continue // nothing can be shown of it on a logarithmic axis
		}
		middle = append(middle, vg.Point{X: x(at.X), Y: y(at.Y.Median)})
		low = append(low, vg.Point{X: x(at.X), Y: y(max(at.Y.Min, f.Y.Min))})
		high = append(high, vg.Point{X: x(at.X), Y: y(min(at.Y.Max, f.Y.Max))})
		spread = spread || at.Y.Max > at.Y.Min
	}
	if len(middle) == 0 {
		return
	}
	if spread {
		var path vg.Path
		path.Move(high[0])
		for _, p := range high[1:] {
			path.Line(p)
		}
		for i := len(low) - 1; i >= 0; i-- {
			path.Line(low[i])
		}
		path.Close()
		shade := inks[l.i%len(inks)]
		c.SetColor(color.NRGBA{shade.R, shade.G, shade.B, 0x30})
		c.Fill(path)
	}
	c.StrokeLines(l.style(), c.ClipLinesXY(middle)...)
	if len(middle) < manyPoints {
		for _, p := range middle {
			c.DrawGlyph(l.dot(), p)
		}
	}
}

// DataRange implements plot.DataRanger.
func (l line) DataRange() (xmin, xmax, ymin, ymax float64) {
	points := l.p.Series[l.i].Points
	xmin, xmax = points[0].X, points[0].X
	for _, at := range points {
		xmin, xmax = min(xmin, at.X), max(xmax, at.X)
	}
	low, high := l.p.limits()
	return xmin, xmax, low, high
}

// Thumbnail implements plot.Thumbnailer.
func (l line) Thumbnail(c *draw.Canvas) {
	middle := c.Center().Y
	c.StrokeLine2(l.style(), c.Min.X, middle, c.Max.X, middle)
	c.DrawGlyph(l.dot(), c.Center())
}

// rect is a rectangle.
func rect(x0, y0, x1, y1 vg.Length) vg.Path {
	var path vg.Path
	path.Move(vg.Point{X: x0, Y: y0})
	path.Line(vg.Point{X: x1, Y: y0})
	path.Line(vg.Point{X: x1, Y: y1})
	path.Line(vg.Point{X: x0, Y: y1})
	path.Close()
	return path
}
