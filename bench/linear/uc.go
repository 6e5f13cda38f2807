package linear

import (
	"fmt"
	"strings"

	"github.com/freshet-cache/freshet/bench/kit"
)

// catalogue is the shape of the workload uc, which models the trace of the Unity Catalog in
// WriteGuards. Each tenant has a metastore, which contains catalogs; these contain schemas, and
// schemas contain tables. Each object has a row and a row of grants.
type catalogue struct{ tenants, catalogs, schemas, tables, principals int }

var ucWhole = catalogue{20, 5, 20, 50, 1000}

const ucSource = "synthetic, from what the paper says of its trace of the Unity Catalog, which is not public: each request composes one value of about 23 KB from 6 to 8 rows; %d tenants of %d catalogs, %d schemas each and %d tables each; a tenant's tables are asked for as zipf 0.99 says"

// The name of an object is a prefix of the names of the objects that it contains, so a schema leads
// to its tables.
func (c catalogue) names(tenant, table int) (metastore, catalog, schema, leaf string) {
	metastore = fmt.Sprintf("t%02d", tenant)
	catalog = fmt.Sprintf("%s/c%d", metastore, table/(c.schemas*c.tables))
	schema = fmt.Sprintf("%s/s%02d", catalog, table/c.tables%c.schemas)
	return metastore, catalog, schema, fmt.Sprintf("%s/t%02d", schema, table%c.tables)
}

// uc makes n requests. A share of them are writes.
func uc(c catalogue, n int, rate, writes float64, seed uint64) *workload {
	b, r := build("uc", rate), kit.Stream(seed, 23)
	b.w.composed = true
	b.w.source = fmt.Sprintf(ucSource, c.tenants, c.catalogs, c.schemas, c.tables)
	perTenant := c.catalogs * c.schemas * c.tables
	tenants, tables := kit.NewZipf(c.tenants, 1), kit.NewZipf(perTenant, 0.99)
	info := func(name string) int32 { return b.row("info:"+name, 3<<10+int(kit.Mix(seed, hash(name))%(2<<10))) }
	grants := func(name string) int32 {
		return b.row("grants:"+name, 1638+int(kit.Mix(seed, hash("g"+name))%(2<<10)))
	}
	for range n {
		tenant := tenants.Draw(r)
		table := tables.Draw(r) * 7919 % perTenant // spread over the schemas
		metastore, catalog, schema, leaf := c.names(tenant, table)
		groups := func() int32 { return b.row(fmt.Sprintf("groups:%s/p%03d", metastore, r.IntN(c.principals)), 1<<10) }
		if r.Float64() >= writes {
			whole := grants(catalog) // the row is part of the value, even if no request reads it alone
			rows := []int32{info(metastore), info(catalog), info(schema), info(leaf), grants(schema), grants(leaf)}
			if r.IntN(2) == 0 {
				rows = append(rows, whole)
			}
			if r.IntN(2) == 0 {
				rows = append(rows, groups())
			}
			b.read(rows...)
			continue
		}
		var row int32
		switch u := r.Float64(); {
		case u < 0.60:
			row = grants(leaf)
		case u < 0.85:
			row = info(leaf)
		case u < 0.95:
			row = grants(schema)
		default:
			row = groups()
		}
		b.write(row, b.w.rows[row].size)
	}
	return b.w
}

func hash(s string) uint64 {
	h := uint64(14695981039346656037)
	for i := range len(s) {
		h = (h ^ uint64(s[i])) * 1099511628211
	}
	return h
}

// shown returns the values that show a written row: that of one table, those of all tables in a
// schema, or that of a principal.
func (c catalogue) shown(key string) (values []string) {
	kind, name, _ := strings.Cut(key, ":")
	switch {
	case kind == "groups":
		return []string{key}
	case strings.Count(name, "/") == 3:
		return []string{"table:" + name}
	}
	for i := range c.tables {
		values = append(values, fmt.Sprintf("table:%s/t%02d", name, i))
	}
	return values
}

// parts returns the keys of the rows of which the value of a table consists.
func parts(value string) []string {
	leaf := strings.TrimPrefix(value, "table:")
	schema := leaf[:strings.LastIndexByte(leaf, '/')]
	catalog := schema[:strings.LastIndexByte(schema, '/')]
	metastore := catalog[:strings.LastIndexByte(catalog, '/')]
	return []string{"info:" + metastore, "info:" + catalog, "info:" + schema, "info:" + leaf, "grants:" + schema, "grants:" + leaf, "grants:" + catalog}
}
