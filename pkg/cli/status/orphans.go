package status

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"k8s.io/client-go/rest"

	"github.com/cluster-version/cvo/internal/printable"
	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/cli/command"
	"github.com/cluster-version/cvo/pkg/cli/printing"
	"github.com/cluster-version/cvo/pkg/engine/inventory"
	"github.com/cluster-version/cvo/pkg/engine/orphans"
)

// orphanOptions choose the owner of the orphans and the output format.
type orphanOptions struct {
	namespace string // namespace of the operator; default api.OperatorNamespace
	owner     string // name of the ClusterVersion; default api.ClusterVersionName
	output    string // text (default), json or yaml
	pruning   inventory.Pruning
}

// printOrphans prints the objects of earlier releases that the current release no longer contains. Warnings about
// missing information go to streams.Err.
func printOrphans(ctx context.Context, streams command.Streams, config *rest.Config, o orphanOptions) error {
	write := writeOrphans
	switch cmp.Or(o.output, "text") {
	case "text":
	case "json":
		write = func(w io.Writer, list orphans.List) error { return printing.JSON(w, list) }
	case "yaml":
		write = func(w io.Writer, list orphans.List) error { return printing.YAML(w, list) }
	default:
		return &command.UsageError{Err: fmt.Errorf("unknown output %q: use text, json or yaml", o.output)}
	}
	list, err := orphans.Find(ctx, config, cmp.Or(o.namespace, api.OperatorNamespace), cmp.Or(o.owner, api.ClusterVersionName), o.pruning)
	if err != nil {
		return err
	}
	for _, w := range list.Warnings {
		streams.Warnf("%s", w)
	}
	return write(streams.Out, list)
}

func writeOrphans(w io.Writer, list orphans.List) error {
	release := printable.Text(cmp.Or(list.Release, "no release"))
	if len(list.Orphans) == 0 {
		_, err := fmt.Fprintf(w, "%s: no orphans\n", release)
		return err
	}
	var out strings.Builder
	table := tabwriter.NewWriter(&out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "KIND\tNAMESPACE\tNAME\tLAST-IN\tDROPPED-BY\tNOTE")
	for _, o := range list.Orphans {
		columns := []string{orphans.GroupKind(o.ID).String(), o.Namespace, o.Name, o.LastRelease, o.DroppedBy}
		for i, c := range columns {
			columns[i] = printable.Text(cmp.Or(c, "-"))
		}
		fmt.Fprintf(table, "%s\t%s\n", strings.Join(columns, "\t"), printable.Text(o.Note))
	}
	_ = table.Flush() // writes to memory
	var text strings.Builder
	fmt.Fprintf(&text, "%s: objects without a manifest (%d)\n\n", release, len(list.Orphans))
	for line := range strings.Lines(out.String()) {
		text.WriteString(strings.TrimRight(line, " \n") + "\n") // an empty note leaves trailing spaces
	}
	_, err := io.WriteString(w, text.String())
	return err
}
