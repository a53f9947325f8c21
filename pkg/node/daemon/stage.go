//go:build linux

package daemon

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-logr/logr"
	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/node/config"
	"github.com/cluster-version/cvo/pkg/node/host"
	"github.com/cluster-version/cvo/pkg/node/machine"
)

// stageRetry is the delay after a config could not be staged. An attempt does not disturb the node.
const stageRetry = time.Minute

var (
	// errNotStaged means that the host cannot stage a config, for example because it has no space.
	errNotStaged = errors.New("putting the config on disk")
	// errUnsupported means that the host can never have a config.
	errUnsupported = errors.New("unsupported")
)

// staging is the result of a request to stage a config. The zero value means that there is none.
type staging struct {
	config string
	// failure says why the config cannot be staged; empty if it is staged.
	failure string
	// again is the time of the next attempt after a failure.
	again time.Time
}

// stage puts the config on disk that the controller names in the MachineConfigNode, which is nil if it does not exist. report writes the result.
// after is the time until the next attempt; 0 if only a change of the MachineConfigNode requires one.
func (d *Daemon) stage(ctx context.Context, m *mcfgv1.MachineConfigNode) (after time.Duration, err error) {
	if m == nil || m.Annotations[api.StageAnnotation] == "" {
		d.staging = staging{}
		return 0, nil
	}
	name := m.Annotations[api.StageAnnotation]
	if d.staging.config != name {
		d.staging = staging{} // until there is a result
	}
	if wait := d.staging.again.Sub(d.clock.Now()); wait > 0 {
		return wait, nil
	}
	if staged, err := d.host.Staged(); err == nil && staged.Name == name && d.staging == (staging{config: name}) {
		return 0, nil
	}
	_, err = d.load(ctx, name)
	if isTransient(err) {
		return 0, err
	}
	if err != nil {
		d.staging = staging{name, err.Error(), d.clock.Now().Add(stageRetry)}
		logr.FromContextOrDiscard(ctx).Info("config cannot be staged", "config", name, "reason", err.Error(), "retry", stageRetry.String())
		return stageRetry, nil
	}
	d.staging = staging{config: name}
	logr.FromContextOrDiscard(ctx).Info("config staged", "config", name)
	return 0, nil
}

// load returns the content of a rendered MachineConfig that the host can have. It stages the config first, unless it is staged already.
func (d *Daemon) load(ctx context.Context, name string) (config.Content, error) {
	content, isStaged := d.staged(name)
	if !isStaged {
		mc := &mcfgv1.MachineConfig{}
		if err := d.client.Get(ctx, client.ObjectKey{Name: name}, mc); err != nil {
			return config.Content{}, fmt.Errorf("reading MachineConfig %s: %w", name, err)
		}
		var err error
		if content, err = config.Decode(mc); err != nil {
			return config.Content{}, err
		}
	}
	if why := d.machine.Unsupported(content); why != "" {
		return config.Content{}, fmt.Errorf("%w: %s", errUnsupported, why)
	}
	if isStaged {
		return content, nil
	}
	if err := d.machine.Stage(ctx, content); errors.Is(err, machine.ErrUnusable) {
		return config.Content{}, fmt.Errorf("%w: %w", errUnsupported, err)
	} else if err != nil {
		return config.Content{}, err
	}
	if err := d.host.Stage(name, content); errors.Is(err, host.ErrBusy) {
		return config.Content{}, err
	} else if err != nil {
		return config.Content{}, fmt.Errorf("%w: %w", errNotStaged, err)
	}
	return content, nil
}

// staged returns the content of a config that is staged, or that is current. The name of the config has a hash of its content, so the content never
// changes.
func (d *Daemon) staged(name string) (content config.Content, isStaged bool) {
	found, err := d.host.Find(name)
	if err != nil || found == (host.Config{}) {
		return content, false
	}
	content, err = d.host.Content(found)
	return content, err == nil
}

// isTransient reports whether load may succeed soon, without a change of the host or the config.
func isTransient(err error) bool {
	_, isInvalid := errors.AsType[*config.Error](err)
	return err != nil && !isInvalid && !errors.Is(err, errNotStaged) && !errors.Is(err, errUnsupported) && !apierrors.IsNotFound(err)
}
