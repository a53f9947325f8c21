//go:build linux

package machine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"time"

	"github.com/cluster-version/cvo/pkg/node/host"
)

const (
	// bootcFile sets the image that a host boots, and ostreeFile removes one that is staged: bootc itself has no command for that.
	bootcFile  = "/usr/bin/bootc"
	ostreeFile = "/usr/bin/ostree"

	// readTimeout is the timeout of a command that changes nothing. The daemon waits for it before it stages a config.
	readTimeout = time.Minute
	// pullTimeout is the timeout of bootc if it downloads an image. The next attempt continues a download that it has interrupted.
	pullTimeout = 30 * time.Minute
)

// byDigest matches the pullspecs that bootc gets: a digest, and no tag, because libraries of bootc reject a pullspec with both.
var byDigest = regexp.MustCompile(`^[A-Za-z0-9][^@]*/[^/:@]+@sha256:[0-9a-f]{64}$`)

// hasBootc reports whether bootc may have booted the host. Only the program knows whether the host runs an image.
func (m *Machine) hasBootc() bool {
	return m.host.HasFiles("/run/ostree-booted", bootcFile, ostreeFile)
}

// bootc is the back end of a host that bootc has booted. Such a host has deployments: each has an image and its own /etc, and all share /var, which has
// the journal. The one of a new image gets a copy of what differs in /etc when the machine shuts down. So the former deployment keeps
// the files that the change has written there, and they are restored there.
type bootc struct{ *Machine }

func (bootc) String() string { return "bootc" }

// deployment is a deployment in the output of bootc; nil if there is none. It has no image if it does not come from one, or if its packages are changed.
type deployment struct {
	Ostree *struct{} `json:"ostree"`
	Image  *struct {
		Image struct {
			Image string `json:"image"`
		} `json:"image"`
	} `json:"image"`
}

func (d *deployment) image() string {
	if d == nil || d.Image == nil || d.Ostree == nil {
		return ""
	}
	return d.Image.Image.Image
}

// deployments are those of a host. Staged is created at the next shutdown, and lost if the host loses its power before.
type deployments struct {
	Staged   *deployment `json:"staged"`
	Booted   *deployment `json:"booted"`
	Rollback *deployment `json:"rollback"`
	// RollbackQueued is true if Rollback boots next.
	RollbackQueued bool `json:"rollbackQueued"`
}

func (b bootc) read(ctx context.Context) (deployments, error) {
	output, err := b.program(ctx, readTimeout, "bootc", bootcFile, nil, "status", "--format=json")
	if err != nil {
		return deployments{}, err
	}
	var found struct {
		Status deployments `json:"status"`
	}
	if err := json.Unmarshal(output, &found); err != nil {
		return deployments{}, fmt.Errorf("reading the output of bootc status: %w", err)
	}
	if found.Status.Booted.image() == "" {
		return deployments{}, errors.New("it has not booted this host: install the host from an image, or give it a program " + HookFile)
	}
	return found.Status, nil
}

func (b bootc) prepare(ctx context.Context) (former string, err error) {
	found, err := b.read(ctx)
	return found.Booted.image(), err
}

func (b bootc) booted(ctx context.Context) (Boot, error) {
	found, err := b.read(ctx)
	return Boot{OSImage: found.Booted.image()}, err
}

// apply does nothing without an image: the host keeps the one that a config has set before.
func (b bootc) apply(ctx context.Context, to Boot) error {
	if to.OSImage == "" {
		return nil
	}
	_, err := b.program(ctx, pullTimeout, "bootc", bootcFile, nil, "switch", "--quiet", to.OSImage)
	return err
}

// sets reports whether a change replaces the image.
func (bootc) sets(change host.Change, to Boot) bool {
	return change.Former != "" && to.OSImage != "" && to.OSImage != change.Former
}

func (b bootc) isLost(ctx context.Context, change host.Change, to Boot) (bool, error) {
	if !b.sets(change, to) {
		return false, nil
	}
	found, err := b.read(ctx)
	// A boot loader may have returned to the former deployment. Then the new one exists.
	return found.Booted.image() == change.Former && found.Rollback.image() != to.OSImage, err
}

func (b bootc) rollback(ctx context.Context, change host.Change, _, to Boot) (isElsewhere bool, err error) {
	if !b.sets(change, to) {
		return false, nil
	}
	found, err := b.read(ctx)
	if err != nil {
		return false, err
	}
	if found.Booted.image() == to.OSImage {
		if found.Rollback.image() != change.Former {
			return false, fmt.Errorf("bootc has no deployment of %s: run 'bootc switch' with it and reboot the node", change.Former)
		}
		if !found.RollbackQueued { // the command is a toggle
			_, err = b.program(ctx, actionTimeout, "bootc", bootcFile, nil, "rollback")
		}
		return true, err
	}
	switch {
	case found.Staged.image() == to.OSImage:
		// A staged deployment has index 0.
		_, err = b.program(ctx, actionTimeout, "ostree", ostreeFile, nil, "admin", "undeploy", "0")
	case found.Rollback.image() == to.OSImage && found.RollbackQueued: // after a boot loader has returned for one boot
		_, err = b.program(ctx, actionTimeout, "bootc", bootcFile, nil, "rollback")
	}
	return false, err
}
