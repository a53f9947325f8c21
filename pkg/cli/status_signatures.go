package cli

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

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/operator"
)

// printSignatures prints who signed the releases that a cluster accepted, as the operator has recorded it.
func printSignatures(ctx context.Context, streams Streams, config *rest.Config, name, output string) error {
	reader, err := client.New(config, client.Options{})
	if err != nil {
		return fmt.Errorf("connecting to the API server: %w", err)
	}
	status, err := operator.ReadReleaseStatus(ctx, reader, name)
	switch {
	case meta.IsNoMatchError(err):
		return fmt.Errorf("the cluster does not serve %s (%s), so nothing is recorded there: releases that are built on this operator bring it",
			api.ReleaseStatusKind, api.ReleaseStatusVersion)
	case err != nil:
		return err
	case status == nil:
		return fmt.Errorf("there is no %s %s: no release has been accepted yet", api.ReleaseStatusKind, name)
	}
	switch output {
	case outputJSON:
		return writeJSON(streams.Out, status.Status)
	case outputYAML:
		return writeYAML(streams.Out, status.Status)
	}
	table := tabwriter.NewWriter(streams.Out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "VERSION\tACCEPTED\tMETHOD\tKEY\tIDENTITY\tSIGNED\tFOUND IN")
	for _, r := range status.Status.Releases {
		for _, cells := range signatureRows(r) {
			for i, cell := range cells {
				cells[i] = printable(oneLine(cell))
			}
			fmt.Fprintln(table, strings.Join(cells, "\t"))
		}
	}
	return table.Flush()
}

// signatureRows are the rows of one release: one for each signature, or one that says why there is none.
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

// shortKey is enough of a fingerprint to tell keys apart by eye; OpenPGP key ids are whole. -o json has all of it.
func shortKey(id string) string {
	const enough = 16
	if len(id) > enough {
		return id[:enough]
	}
	return id
}
