package main

import (
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/cluster-version/cvo/pkg/engine/rollout"
	"github.com/cluster-version/cvo/pkg/kube/fence"
	"github.com/cluster-version/cvo/pkg/operator/clustermetrics"
)

// registered collects metrics with their types.
type registered struct {
	prometheus.Registerer
	types map[*prometheus.Desc]string
}

// Register implements prometheus.Registerer.
func (r registered) Register(c prometheus.Collector) error {
	switch c.(type) {
	case *prometheus.CounterVec, prometheus.CounterFunc:
		r.add("counter", c.Describe)
	case *prometheus.HistogramVec:
		r.add("histogram", c.Describe)
	case *prometheus.GaugeVec:
		r.add("gauge", c.Describe)
	default:
		return fmt.Errorf("unknown type %T of a metric", c)
	}
	return nil
}

func (r registered) add(kind string, describe func(chan<- *prometheus.Desc)) {
	descriptions := make(chan *prometheus.Desc)
	go func() {
		defer close(descriptions)
		describe(descriptions)
	}()
	for d := range descriptions {
		r.types[d] = kind
	}
}

// description matches the text of a prometheus.Desc, which has no methods for its parts.
var description = regexp.MustCompile(`fqName: "(\w+)", help: ("(?:[^"\\]|\\.)*"), .*variableLabels: \{([\w,]*)\}`)

// metrics lists the operator's metrics.
func metrics() (string, error) {
	r := registered{types: map[*prometheus.Desc]string{}}
	for _, d := range clustermetrics.Descriptions() {
		r.types[d] = "gauge" // as each scrape creates them
	}
	_, err := clustermetrics.New(r)
	_, errRollout := rollout.NewMetrics(r)
	err = errors.Join(err, errRollout, new(fence.Fence).Register(r, "operator"))
	rows := map[string]string{}
	for d, kind := range r.types {
		parts := description.FindStringSubmatch(d.String())
		if parts == nil {
			return "", fmt.Errorf("cannot read the description %s", d)
		}
		help, _ := strconv.Unquote(parts[2]) // prometheus has quoted it
		labels := ""
		if parts[3] != "" {
			labels = "`" + strings.ReplaceAll(parts[3], ",", "`, `") + "`"
		}
		rows[parts[1]] = fmt.Sprintf("| `%s` | %s | %s | %s |\n", parts[1], kind, labels, cell(help))
	}
	own, shared := "", ""
	for _, name := range slices.Sorted(maps.Keys(rows)) {
		if strings.HasPrefix(name, "cvo_") {
			own += rows[name]
		} else {
			shared += rows[name]
		}
	}
	const head = "| metric | type | labels | help |\n|---|---|---|---|\n"
	return "## Metrics with the names of OpenShift's operator\n\n" + head + shared + "\n## Further metrics\n\n" + head + own, err
}
