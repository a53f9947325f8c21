package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"charm.land/lipgloss/v2"
	"github.com/spf13/cobra"
	"golang.org/x/term"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/rollout"
)

type statusOptions struct {
	contextFlags
	namespace  string
	name       string
	server     string
	serverCA   string
	component  string
	output     string
	watch      bool
	all        bool
	orphans    bool
	signatures bool
}

// statusEvery is how often the operator is asked while watching; it mostly answers that nothing has changed.
const statusEvery = time.Second

func newStatusCmd(streams Streams) *cobra.Command {
	o := &statusOptions{}
	cmd := &cobra.Command{
		Use:   "status [--watch]",
		Short: "Show how far the rollout is, as a tree of runlevels, components and manifests",
		Long: `Show how far the rollout is, as a tree of runlevels, components and manifests, from the account that the version
operator itself gives. What has settled is one line; what waits or failed says since when and why.

The operator is found by its Lease: if a pod leads, through the API server, else at ` + localServer + `. Its certificate
must be the one whose fingerprint the Lease has, or one that --server-ca has signed; before that is clear no credentials
are shown to it. It takes the ClusterRole cluster-version-operator-viewer.

If the operator cannot be asked, what the ClusterVersion says is shown instead, and the exit code is 4.`,
		Example: `  # Where is the update?
  cvo status

  # Follow it; without a terminal, each change is a line
  cvo status --watch

  # All that is known of one component
  cvo status --component dns

  # What earlier releases have left behind
  cvo status --orphans

  # Who signed what this cluster runs and ran
  cvo status --signatures

  # What waits, for a script
  cvo status -o json | jq '.objects[] | select(.state == "waiting")'`,
		Args: usageArgs(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error { return o.run(cmd.Context(), streams) },
	}
	f := cmd.Flags()
	o.contextFlags.add(f)
	f.StringVarP(&o.namespace, "namespace", "n", envOr("CVO_NAMESPACE", api.OperatorNamespace), "`namespace` of the operator and its Lease")
	f.StringVar(&o.name, "name", envOr("CVO_NAME", api.ClusterVersionName), "`name` of the ClusterVersion")
	f.StringVar(&o.server, "server", "", "`URL` of the operator's endpoint; default found by its Lease")
	f.StringVar(&o.serverCA, "server-ca", "", "`file` with the CA that signed the endpoint's certificate; default the Lease tells its fingerprint")
	f.BoolVarP(&o.watch, "watch", "w", false, "follow the rollout until interrupted")
	f.BoolVar(&o.all, "all", false, "show every manifest, also those that settled and those left out")
	f.BoolVar(&o.orphans, "orphans", false, "list the objects of earlier releases that no manifest names any more")
	f.BoolVar(&o.signatures, "signatures", false, "list who signed the releases that the cluster accepted")
	f.StringVar(&o.component, "component", "", "show one component only, in full")
	f.StringVarP(&o.output, "output", "o", outputText, "`format`: text, json or yaml")
	_ = cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(textOutputs(), cobra.ShellCompDirectiveNoFileComp))
	return cmd
}

func (o *statusOptions) validate() error {
	switch {
	case !slices.Contains(textOutputs(), o.output):
		return &UsageError{fmt.Errorf("-o %q: want %s", o.output, strings.Join(textOutputs(), ", "))}
	case o.signatures && (o.orphans || o.watch || o.all || o.component != "" || o.server != "" || o.serverCA != ""):
		return &UsageError{errors.New("--signatures reads the cluster, not the operator's account: it goes with --output and --name only")}
	case o.orphans && (o.watch || o.all || o.component != "" || o.server != "" || o.serverCA != ""):
		return &UsageError{errors.New("--orphans reads the cluster, not the operator's account: it goes with --output, --namespace and --name only")}
	case o.server != "" && !strings.HasPrefix(o.server, "https://"):
		return &UsageError{fmt.Errorf("--server %q: want a URL like %s", o.server, localServer)}
	}
	return nil
}

func (o *statusOptions) run(ctx context.Context, streams Streams) error {
	if err := o.validate(); err != nil {
		return err
	}
	cfg, err := o.config()
	if err != nil {
		return err
	}
	cfg.UserAgent = "cvo-status"
	cfg.WarningHandlerWithContext = rest.NoWarnings{}
	if o.orphans {
		return printOrphans(ctx, streams, cfg, orphanOptions{namespace: o.namespace, owner: o.name, output: o.output})
	}
	if o.signatures {
		return printSignatures(ctx, streams, cfg, o.name, o.output)
	}
	source := &statusSource{clock: clock.RealClock{}, cfg: cfg, namespace: o.namespace, name: o.name, server: o.server}
	if o.serverCA != "" {
		if source.ca, err = os.ReadFile(o.serverCA); err != nil {
			return &UsageError{fmt.Errorf("reading --server-ca: %w", err)}
		}
	}
	defer source.close()
	view := o.view(streams)
	switch {
	case o.watch && o.output == outputText && view.Colour:
		return o.watchScreen(ctx, streams, source, view)
	case o.watch:
		return o.watchLines(ctx, streams, source)
	}
	return o.once(ctx, streams, source, view)
}

// view draws for the terminal that the results go to, and plainly for anything else.
func (o *statusOptions) view(streams Streams) statusView {
	terminal := isTerminal(streams.Out)
	return statusView{
		All: o.all, Component: o.component,
		Colour:  terminal && os.Getenv("TERM") != "dumb",
		Unicode: terminal && speaksUTF8(os.Getenv),
	}
}

func isTerminal(w io.Writer) bool {
	file, ok := w.(*os.File)
	return ok && term.IsTerminal(int(file.Fd()))
}

// speaksUTF8 asks the locale; the first variable that is set counts (POSIX, XBD 8.2).
func speaksUTF8(getenv func(string) string) bool {
	for _, name := range []string{"LC_ALL", "LC_CTYPE", "LANG"} {
		if value := strings.ToUpper(getenv(name)); value != "" {
			return strings.Contains(value, "UTF-8") || strings.Contains(value, "UTF8")
		}
	}
	return false
}

// once shows the account as it is now.
func (o *statusOptions) once(ctx context.Context, streams Streams, source *statusSource, view statusView) error {
	snapshot, err := source.rollout(ctx)
	if err != nil {
		return o.instead(ctx, streams, source, err)
	}
	if o.output != outputText {
		return o.write(streams.Out, snapshot)
	}
	return view.write(streams.Out, view.render(snapshot))
}

// write writes an account for scripts: with --component, of that one only.
func (o *statusOptions) write(out io.Writer, snapshot *rollout.Snapshot) error {
	if o.component != "" {
		chosen := *snapshot
		chosen.Objects = filterObjects(snapshot.Objects, func(object rollout.Object) bool { return object.Component == o.component })
		snapshot = &chosen
	}
	switch {
	case o.output == outputJSON && o.watch:
		return json.NewEncoder(out).Encode(snapshot) // one line each
	case o.output == outputJSON:
		return writeJSON(out, snapshot)
	case o.watch:
		if _, err := fmt.Fprintln(out, "---"); err != nil {
			return err
		}
	}
	return writeYAML(out, snapshot)
}

func writeLines(out io.Writer, lines []string) error {
	_, err := io.WriteString(out, strings.Join(lines, "\n")+"\n")
	return err
}

// write writes a picture in as many colours as the terminal and $NO_COLOR allow.
func (v statusView) write(out io.Writer, lines []string) error {
	if !v.Colour {
		return writeLines(out, lines)
	}
	_, err := lipgloss.Fprintln(out, strings.Join(lines, "\n"))
	return err
}

// instead shows what the ClusterVersion says when the operator cannot be asked, or has nothing to tell yet.
func (o *statusOptions) instead(ctx context.Context, streams Streams, source *statusSource, why error) error {
	if o.output == outputText {
		lines, err := clusterVersionLines(ctx, source.cfg, source.name, source.clock.Now())
		if err == nil {
			err = writeLines(streams.Out, append(lines, "", "This is what the ClusterVersion says; the operator's own account, which tells more, is missing."))
		}
		if err != nil {
			return errors.Join(why, err)
		}
	}
	if errors.Is(why, errNoRollout) && o.output == outputText {
		return nil // there is no more to tell
	}
	return &PartialError{why}
}

// watchLines writes a line for each change, or an account for each with -o json or yaml.
func (o *statusOptions) watchLines(ctx context.Context, streams Streams, source *statusSource) error {
	var before *rollout.Snapshot
	told := ""
	for {
		snapshot, err := source.rollout(ctx)
		switch {
		case ctx.Err() != nil:
			return nil //nolint:nilerr // an interrupt is how watching ends
		case err != nil:
			if text := err.Error(); text != told {
				fmt.Fprintln(streams.Err, "warning:", oneLine(text))
				told = text
			}
		case snapshot != nil:
			told = ""
			if err := o.tell(streams.Out, before, snapshot); err != nil {
				return err
			}
			before = snapshot
		}
		if !pauseFor(ctx, statusEvery) {
			return nil
		}
	}
}

func (o *statusOptions) tell(out io.Writer, before, after *rollout.Snapshot) error {
	if o.output != outputText {
		return o.write(out, after)
	}
	if lines := statusChanges(before, after, o.component); len(lines) > 0 {
		return writeLines(out, lines)
	}
	return nil
}

// pauseFor waits; false means that ctx has ended.
func pauseFor(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return ctx.Err() == nil
	case <-ctx.Done():
		return false
	}
}
