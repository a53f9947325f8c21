package operator

import (
	"context"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/uuid"
)

// Identity is what a replica calls itself in the Lease: <host>_<unique>, as clients of leader election are used to, and
// after it _<fingerprint> if it serves. So whoever may read the Lease knows which pod leads and can tell its key from any
// other.
type Identity struct {
	// Host is the name of the pod, which may be in the network of its node and thus have the node's for a host name; else
	// of the host.
	Host string
	// Unique tells two processes of one host apart.
	Unique string
	// Fingerprint is that of the serving key, see Fingerprint; empty if nothing is served.
	Fingerprint string
}

// Neither a UUID nor base64url can be mistaken for what follows it, whatever a host is called.
var identityPattern = regexp.MustCompile(`^(.+?)_([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})(?:_([A-Za-z0-9_-]{43}))?$`)

// newIdentity makes the identity of this process; pod is empty where it is none, c is nil where nothing is served.
func newIdentity(pod string, c *certificate) (Identity, error) {
	host := pod
	if host == "" {
		var err error
		if host, err = os.Hostname(); err != nil {
			return Identity{}, fmt.Errorf("reading the name of this host: %w", err)
		}
	}
	id := Identity{Host: host, Unique: string(uuid.NewUUID())}
	if c != nil {
		id.Fingerprint = c.fingerprint()
	}
	return id, nil
}

// ParseIdentity reads the holder of a Lease. Of one that is written otherwise, all is the host's name.
func ParseIdentity(holder string) Identity {
	match := identityPattern.FindStringSubmatch(holder)
	if match == nil {
		return Identity{Host: holder}
	}
	return Identity{Host: match[1], Unique: match[2], Fingerprint: match[3]}
}

// String is how the Lease has it.
func (id Identity) String() string {
	parts := []string{id.Host, id.Unique, id.Fingerprint}
	return strings.Join(slices.DeleteFunc(parts, func(part string) bool { return part == "" }), "_")
}

// leaderTimeout bounds the question who leads, which a replica that does not lead asks for each of its callers.
const leaderTimeout = 5 * time.Second

// leader names the host that leads; empty if nobody does.
func (e *endpoint) leader(ctx context.Context) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, leaderTimeout)
	defer cancel()
	lease, err := e.leases.Get(ctx, e.election.LeaseMeta.Name, metav1.GetOptions{})
	if err != nil {
		return "", err
	}
	if lease.Spec.HolderIdentity == nil {
		return "", nil
	}
	return ParseIdentity(*lease.Spec.HolderIdentity).Host, nil
}
