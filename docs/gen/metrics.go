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
	nodemetrics "github.com/cluster-version/cvo/pkg/node/metrics"
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

// metrics lists the metrics of the operator and of the node stage.
func metrics() (string, error) {
	operator, node := registered{types: map[*prometheus.Desc]string{}}, registered{types: map[*prometheus.Desc]string{}}
	for _, d := range clustermetrics.Descriptions() {
		operator.types[d] = "gauge" // as each scrape creates them
	}
	_, err := clustermetrics.New(operator)
	_, errRollout := rollout.NewMetrics(operator)
	err = errors.Join(err, errRollout, new(fence.Fence).Register(operator, "operator"))
	for _, d := range nodemetrics.Descriptions() {
		node.types[d] = "gauge"
	}
	err = errors.Join(err, node.Register(nodemetrics.NewPhases()), new(fence.Fence).Register(node, "node_controller"))
	shared, own, errOperator := operator.tables()
	nodeShared, nodeOwn, errNode := node.tables()
	return "## Metrics with the names of OpenShift's operator\n\n" + shared + "\n## Further metrics of the operator\n\n" + own +
			"\n## Metrics of the node stage with the names of OpenShift's\n\n" + nodeShared + "\n## Further metrics of the node stage\n\n" + nodeOwn,
		errors.Join(err, errOperator, errNode)
}

// tables returns a table of the metrics with OpenShift's names, and one of our own.
func (r registered) tables() (shared, own string, err error) {
	const head = "| metric | type | labels | help |\n|---|---|---|---|\n"
	shared, own = head, head
	rows := map[string]string{}
	for d, kind := range r.types {
		parts := description.FindStringSubmatch(d.String())
		if parts == nil {
			return "", "", fmt.Errorf("cannot read the description %s", d)
		}
		help, _ := strconv.Unquote(parts[2]) // prometheus has quoted it
		labels := ""
		if parts[3] != "" {
			labels = "`" + strings.ReplaceAll(parts[3], ",", "`, `") + "`"
		}
		rows[parts[1]] = fmt.Sprintf("| `%s` | %s | %s | %s |\n", parts[1], kind, labels, cell(help))
	}
	for _, name := range slices.Sorted(maps.Keys(rows)) {
		if strings.HasPrefix(name, "cvo_") {
			own += rows[name]
		} else {
			shared += rows[name]
		}
	}
	return shared, own, nil
}
