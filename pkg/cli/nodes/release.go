package nodes

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cluster-version/cvo/internal/pointers"
	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/cli/command"
	"github.com/cluster-version/cvo/pkg/cli/printing"
	"github.com/cluster-version/cvo/pkg/cli/watching"
	"github.com/cluster-version/cvo/pkg/node/config"
	"github.com/cluster-version/cvo/pkg/node/pool"
	"github.com/cluster-version/cvo/pkg/view/nodes"
)

type releaseOptions struct {
	flags
	nodes     []string
	all, undo bool
	wait      bool
	timeout   time.Duration
	quiet     bool
	dryRun    dryRun
}

func newReleaseCmd(streams command.Streams) *cobra.Command {
	o := &releaseOptions{}
	cmd := &cobra.Command{
		Use:   "release NODE... | --all",
		Short: "Take nodes out of the hands of the node stage, before its removal",
		Long: `Take nodes out of the hands of the node stage, before its removal.

The daemon of a node undoes the change in progress, or completes it if the node has rebooted with it. It waits until the
controller has lifted the cordon, disables the guard and removes ` + config.Folder + ` from the host. Files, units, keys and
kernel arguments of the last config stay. A released node is in no pool, uses no slot and is never updated. So release the nodes
before you delete the node stage, and delete its workloads only after that: without them, no one does this.

With --undo, nodes return to the stage. A node whose disk has the pool's config is current at once, and any other is updated. So
is one whose config has kernel arguments or an image of the operating system.

The command writes annotation ` + api.NodeReleasedAnnotation + ` of the Nodes, or deletes it, and waits. A node that never
had a daemon is released at once. The command lists MachineConfigPools and Nodes.

Exit codes: 0 released, or requested without --wait; 1 failure; 2 invalid command line; 5 timeout (--timeout); 130 interrupted.`,
		Example: `  # Release a node
  cvo nodes release worker-2

  # Release all nodes before the removal of the node stage, in a script
  cvo nodes release --all --timeout=1h

  # Return the node to the stage
  cvo nodes release worker-2 --undo`,
		RunE: func(cmd *cobra.Command, args []string) error {
			o.nodes = args
			if err := o.check(cmd.Flags().Changed("wait")); err != nil {
				return err
			}
			return o.run(cmd.Context(), streams)
		},
	}
	f := cmd.Flags()
	f.BoolVar(&o.all, "all", false, "release all nodes")
	f.BoolVar(&o.undo, "undo", false, "return the nodes to the node stage")
	f.BoolVar(&o.wait, "wait", true, "wait until the nodes are released")
	f.DurationVar(&o.timeout, "timeout", 30*time.Minute, "total `time` to wait; 0 waits forever")
	f.BoolVarP(&o.quiet, "quiet", "q", false, "do not show progress")
	o.dryRun.add(cmd)
	o.add(cmd)
	cmd.ValidArgsFunction = o.complete(o.nodeNames)
	return cmd
}

func (o *releaseOptions) check(setsWait bool) error {
	switch {
	case o.all && len(o.nodes) > 0:
		return command.Usagef("--all and nodes exclude each other: omit one of them")
	case !o.all && len(o.nodes) == 0:
		return command.Usagef("name the nodes, or add --all")
	case o.undo && setsWait && o.wait:
		return command.Usagef("--undo does not wait: omit --wait, and run 'cvo nodes status --watch'")
	case o.timeout < 0:
		return command.Usagef("--timeout %s: use a positive duration", o.timeout)
	}
	if err := o.dryRun.check(); err != nil {
		return err
	}
	return o.read(nil)
}

func (o *releaseOptions) run(ctx context.Context, streams command.Streams) error {
	c, cluster, err := o.state(ctx, "cvo-nodes-release")
	if err != nil {
		return err
	}
	result, err := nodes.NewRelease(cluster, o.nodes, o.undo)
	if err != nil {
		return err
	}
	result.DryRun = o.dryRun.kind()
	isSent := false
	for _, l := range result.Nodes {
		if !l.Changed {
			continue
		}
		isSent = true
		if err := o.request(ctx, c, l.Node, cluster.At); client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("writing annotation %s of node %s: %w", api.NodeReleasedAnnotation, l.Node, err)
		}
	}
	var unfinished error
	if o.wait && !o.undo && o.dryRun.kind() == "" {
		unfinished = o.follow(ctx, streams, c, result)
	}
	if o.output != "" {
		err = printing.Structured(streams, o.output, result)
	} else if unfinished == nil {
		err = o.dryRun.print(streams.Out, result.Message, isSent)
	}
	if err != nil {
		return err
	}
	return unfinished
}

// request writes the annotation of a node, or deletes it. Its value says when the node was released.
func (o *releaseOptions) request(ctx context.Context, c client.Client, node string, now time.Time) error {
	var value *string
	if !o.undo {
		at := now.UTC().Format(time.RFC3339)
		value = &at
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": map[string]*string{api.NodeReleasedAnnotation: value}}})
	if err != nil {
		return err
	}
	return o.dryRun.patch(ctx, c, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node}}, patch)
}

// follow waits until the nodes are released, and updates the result. The error has an exit code.
func (o *releaseOptions) follow(ctx context.Context, streams command.Streams, c client.Reader, result *nodes.Release) error {
	if o.timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, o.timeout, command.ErrTimeout)
		defer cancel()
	}
	reading, stop := context.WithCancel(ctx)
	defer stop()
	var last string
	err := watching.Follow(reading, streams,
		func(ctx context.Context) ([]corev1.Node, error) {
			var list corev1.NodeList
			err := c.List(ctx, &list)
			return list.Items, err
		},
		func(found []corev1.Node) error {
			result.Observe(pointers.To(found))
			line := result.Waiting()
			if line == "" {
				stop()
			} else if line != last && !o.quiet {
				streams.Infof("waiting for %s", line)
			}
			last = line
			return nil
		})
	state := &command.StateError{Code: command.ExitUpdating}
	switch {
	case err != nil:
		return err
	case len(result.Pending()) == 0:
		return nil
	case errors.Is(context.Cause(ctx), command.ErrTimeout):
		state.Err = fmt.Errorf("not released within %s: %s. %s", o.timeout, result.Waiting(), nodes.ByHand())
	default:
		state.Code, state.Err = command.ExitInterrupted, fmt.Errorf("interrupted: the nodes still leave the node stage: %s", result.Waiting())
	}
	command.PrintError(streams.Err, state.Err) // main does not print StateErrors
	return state
}

// nodeNames returns the names of the nodes that the command may change.
func (o *releaseOptions) nodeNames(ctx context.Context, c client.Reader) (names []string, err error) {
	var list corev1.NodeList
	err = c.List(ctx, &list)
	for i := range list.Items {
		if n := &list.Items[i]; pool.IsReleased(n) == o.undo {
			names = append(names, n.Name)
		}
	}
	return names, err
}
