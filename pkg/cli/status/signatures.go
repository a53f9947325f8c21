package status

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"text/tabwriter"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cluster-version/cvo/internal/printable"
	"github.com/cluster-version/cvo/internal/terminal"
	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/cli/command"
	"github.com/cluster-version/cvo/pkg/cli/printing"
	"github.com/cluster-version/cvo/pkg/clusterversion/archive"
)

// printSignatures prints the signers of the releases that a cluster accepted, from the operator's records.
func printSignatures(ctx context.Context, streams command.Streams, config *rest.Config, name, output string) error {
	reader, err := client.New(config, client.Options{})
	if err != nil {
		return fmt.Errorf("connecting to the API server: %w", err)
	}
	status, err := archive.ReadReleaseStatus(ctx, reader, name)
	switch {
	case meta.IsNoMatchError(err):
		return fmt.Errorf("the cluster does not serve %s (%s), so it has no record of signatures: install a release that contains this operator",
			api.ReleaseStatusKind, api.ReleaseStatusVersion)
	case err != nil:
		return err
	case status == nil:
		return fmt.Errorf("there is no %s %s: no release has been accepted yet", api.ReleaseStatusKind, name)
	}
	switch output {
	case printing.FormatJSON:
		return printing.JSON(streams.Out, status.Status)
	case printing.FormatYAML:
		return printing.YAML(streams.Out, status.Status)
	}
	table := tabwriter.NewWriter(streams.Out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "VERSION\tACCEPTED\tMETHOD\tKEY\tIDENTITY\tSIGNED\tFOUND IN")
	for _, r := range status.Status.Releases {
		for _, cells := range signatureRows(r) {
			for i, cell := range cells {
				cells[i] = printable.Text(terminal.OneLine(cell))
			}
			fmt.Fprintln(table, strings.Join(cells, "\t"))
		}
	}
	return table.Flush()
}

// signatureRows returns the rows of one release: one for each signature, or one with the reason why there is none.
func signatureRows(r api.AcceptedRelease) [][]string {
	row := func(method, key, identity, signed, where string) []string {
		return []string{r.Version, r.AcceptedAt.UTC().Format(time.RFC3339), method, key, identity, signed, where}
	}
	switch {
	case r.Forced != "":
		return [][]string{row("forced", "-", "-", "-", r.Forced)}
	case len(r.Evidence) == 0:
		return [][]string{row("none", "-", "-", "-", "the operator was started from this release")}
	}
	var rows [][]string
	for _, e := range r.Evidence {
		signed := "-"
		if e.SignedAt != nil {
			signed = e.SignedAt.UTC().Format(time.RFC3339)
		}
		rows = append(rows, row(e.Method, shortKey(e.KeyID), cmp.Or(e.Identity, "-"), signed, e.Store))
	}
	return rows
}

// shortKey shortens a fingerprint. A reader can still distinguish the keys. OpenPGP key IDs are short enough to print in full. -o json
// prints complete fingerprints.
func shortKey(id string) string {
	const enough = 16
	if len(id) > enough {
		return id[:enough]
	}
	return id
}
