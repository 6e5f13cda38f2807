package kit

import (
	"bytes"
	"image/color"
	"os"
	"path/filepath"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	_ "gonum.org/v1/plot/vg/vgimg" // PNG
	_ "gonum.org/v1/plot/vg/vgsvg" // SVG
)

// Figure is a plot and the name of its files.
type Figure struct {
	title, name string
	plot        *plot.Plot
}

func (f Figure) save(dir string) error {
	for _, kind := range []string{"png", "svg"} {
		c, err := draw.NewFormattedCanvas(18*vg.Centimeter, 11*vg.Centimeter, kind)
		if err != nil {
			return err
		}
		area := draw.New(c)
		area.SetColor(color.White)
		area.Fill(area.Rectangle.Path())
		const edge = 3 * vg.Millimeter // or else labels at the rim are cut
		f.plot.Draw(draw.Crop(area, edge, -edge, edge, -edge))
		var b bytes.Buffer
		if _, err := c.WriteTo(&b); err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(dir, f.name+"."+kind), b.Bytes(), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// inks can be told apart by people who see few colours, and in grey.
var inks = []color.Color{
	color.RGBA{0x1b, 0x6c, 0xa8, 0xff}, color.RGBA{0xe6, 0x9f, 0x00, 0xff}, color.RGBA{0x5f, 0x5f, 0x5f, 0xff},
	color.RGBA{0x8f, 0xc9, 0xe8, 0xff}, color.RGBA{0xa0, 0x3c, 0x3c, 0xff}, color.RGBA{0x2e, 0x8b, 0x57, 0xff}, color.RGBA{0x6a, 0x3d, 0x9a, 0xff},
}

// Series is one system's values.
type Series struct {
	Name   string
	Values []float64 // of bars: one for each group
	Points plotter.XYs
}

// Level draws a line across, to compare bars with.
func (f Figure) Level(at float64) {
	l := plotter.NewFunction(func(float64) float64 { return at })
	l.Width, l.Dashes = vg.Points(1), []vg.Length{vg.Points(4), vg.Points(3)}
	f.plot.Add(l)
}

// Bars draws a group of bars for each name, one bar for each series.
func Bars(title, unit string, groups []string, list []Series) (Figure, error) {
	p := plot.New()
	p.Title.Text, p.Y.Label.Text, p.Y.Min, p.Legend.Top = title, unit, 0, true
	width := vg.Points(320 / float64(len(groups)*(len(list)+1)))
	top := 0.0
	for i, s := range list {
		b, err := plotter.NewBarChart(plotter.Values(s.Values), width)
		if err != nil {
			return Figure{}, err
		}
		b.Color, b.LineStyle.Width = inks[i%len(inks)], 0
		b.Offset = width * vg.Length(float64(i)-float64(len(list)-1)/2)
		p.Add(b)
		p.Legend.Add(s.Name, b)
		for _, v := range s.Values {
			top = max(top, v)
		}
	}
	p.Y.Max = top * 1.3 // room for the legend
	p.NominalX(groups...)
	p.X.Min, p.X.Max = -0.5, float64(len(groups))-0.5
	return Figure{title: title, plot: p}, nil
}

// Curves draws a line for each series over logarithmic axes.
func Curves(title, x, y string, list []Series) (Figure, error) {
	p := plot.New()
	p.Title.Text, p.X.Label.Text, p.Y.Label.Text, p.Legend.Top = title, x, y, true
	p.X.Scale, p.Y.Scale = plot.LogScale{}, plot.LogScale{}
	p.X.Tick.Marker, p.Y.Tick.Marker = plot.LogTicks{Prec: -1}, plot.LogTicks{Prec: -1}
	for i, s := range list {
		l, err := plotter.NewLine(s.Points)
		if err != nil {
			return Figure{}, err
		}
		l.Color, l.Width = inks[i%len(inks)], vg.Points(1.5)
		p.Add(l)
		p.Legend.Add(s.Name, l)
	}
	p.Add(plotter.NewGrid())
	return Figure{title: title, plot: p}, nil
}

// Levels draws a line with dots over groups for each series, up a logarithmic axis.
func Levels(title, unit string, groups []string, list []Series) Figure {
	p := plot.New()
	p.Title.Text, p.Y.Label.Text, p.Legend.Top, p.Legend.Left = title, unit, true, false
	p.Y.Scale, p.Y.Tick.Marker = plot.LogScale{}, plot.LogTicks{Prec: -1}
	top := 0.0
	for i, s := range list {
		l, dots, err := plotter.NewLinePoints(s.Points)
		if err != nil {
			continue // a system without a value has no line
		}
		l.Color, l.Width = inks[i%len(inks)], vg.Points(1)
		dots.Color, dots.Shape = inks[i%len(inks)], draw.CircleGlyph{}
		p.Add(l, dots)
		p.Legend.Add(s.Name, l, dots)
		for _, at := range s.Points {
			top = max(top, at.Y)
		}
	}
	p.Add(plotter.NewGrid())
	p.NominalX(groups...)
	p.X.Min, p.X.Max = -0.5, float64(len(groups))-0.5
	p.Y.Max = top * 30 // room for the legend
	return Figure{title: title, plot: p}
}

// Timeline draws a line for each series over seconds.
func Timeline(title string, list []Series) Figure {
	p := plot.New()
	p.Title.Text, p.X.Label.Text, p.Y.Label.Text, p.Y.Min, p.Legend.Top = title, "seconds", "answers a second", 0, true
	top := 0.0
	for i, s := range list {
		l, err := plotter.NewLine(s.Points)
		if err != nil {
			continue // nothing was answered
		}
		l.Color, l.Width = inks[i%len(inks)], vg.Points(1.5)
		p.Add(l)
		p.Legend.Add(s.Name, l)
		for _, at := range s.Points {
			top = max(top, at.Y)
		}
	}
	p.Y.Max = top * 1.3 // room for the legend
	p.Add(plotter.NewGrid())
	return Figure{title: title, plot: p}
}
