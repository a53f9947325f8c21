package certificate

import (
	"context"
	"fmt"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/utils/clock"

	"github.com/cluster-version/cvo/internal/backoff"
	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/kube/fence"
	"github.com/cluster-version/cvo/pkg/kube/watch"
)

// Keeper stores a CA in a Secret that all replicas share, and the CA's certificates in a ConfigMap for clients. It makes this replica serve
// with a certificate from the CA. Every replica runs a Keeper, whether or not it leads: the API server accepts one of several concurrent
// writes, and the other replicas see it. If another client deletes or damages the objects, the Keeper restores them with the same CA.
type Keeper struct {
	clock       clock.Clock
	client      corev1client.CoreV1Interface
	options     KeeperOptions
	certificate *Certificate

	// known is the last CA that was read or created; the zero value if there was none.
	known authority
	// repairs limits the rate of writes, because another client may keep deleting the objects.
	repairs fence.Repairs
	// failures is the number of failures since the last success.
	failures int

	// changes guards secret and bundle.
	changes *watch.Changes
	secret  watch.Latest[*corev1.Secret]
	bundle  watch.Latest[*corev1.ConfigMap]
}

// maxInterval is the longest interval between two steps. It limits the delay of retries, and the time until a corrected clock is noticed.
const maxInterval = 10 * time.Minute

// KeeperOptions configures a Keeper. No field has a default.
type KeeperOptions struct {
	// Namespace and Name identify both the Secret and the ConfigMap.
	Namespace, Name string
	// Owner is the name of the serving process in the descriptions of both objects.
	Owner string
}

// NewKeeper returns a keeper of the CA that signs the given certificate. The client must be able to write while another replica leads.
func NewKeeper(clk clock.Clock, client corev1client.CoreV1Interface, options KeeperOptions, certificate *Certificate) *Keeper {
	return &Keeper{
		clock: clk, client: client, options: options, certificate: certificate,
		repairs: fence.NewRepairs(clk.Now()),
		changes: watch.NewChanges(),
	}
}

// NeedLeaderElection implements manager.LeaderElectionRunnable. Every replica serves.
func (*Keeper) NeedLeaderElection() bool { return false }

// Start implements manager.Runnable.
func (k *Keeper) Start(ctx context.Context) error {
	watch.Run(ctx, func() { k.keepOn(ctx) },
		watch.NewSingle(k.client.Secrets(k.options.Namespace), &corev1.Secret{}, k.options.Name, watch.OnState(func(secret *corev1.Secret) {
			k.changes.Record(func() { k.secret.Observe(secret) })
		})),
		watch.NewSingle(k.client.ConfigMaps(k.options.Namespace), &corev1.ConfigMap{}, k.options.Name, watch.OnState(func(bundle *corev1.ConfigMap) {
			k.changes.Record(func() { k.bundle.Observe(bundle) })
		})),
	)
	return nil
}

// keepOn repeats step whenever something is due or has changed, until ctx ends.
func (k *Keeper) keepOn(ctx context.Context) {
	for {
		timer := k.clock.NewTimer(k.step(ctx))
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-k.changes.C():
		case <-timer.C():
		}
		timer.Stop()
	}
}

// step does everything that is due, and returns the time until the next step.
func (k *Keeper) step(ctx context.Context) time.Duration {
	now := k.clock.Now()
	ca, err := k.keepCA(ctx, now)
	due := now.Add(maxInterval)
	if err == nil {
		due, err = k.renewLeaf(ctx, ca, now)
	}
	if err == nil {
		err = k.keepBundle(ctx, ca)
	}
	switch {
	case err == nil:
		k.failures = 0
		return min(max(due.Sub(now), time.Second), maxInterval)
	case apierrors.IsConflict(err), apierrors.IsAlreadyExists(err):
		// Another replica was first. The watch reports its object; otherwise the next step fails in the same way.
		return time.Second
	case ctx.Err() != nil:
		return maxInterval
	}
	if k.failures == 0 {
		logr.FromContextOrDiscard(ctx).Error(err, "cannot maintain the serving CA; the current certificate stays in use")
	}
	k.failures++
	return backoff.Doubling{First: 2 * time.Second, Max: maxInterval}.After(k.failures)
}

// renewLeaf makes the endpoint serve a certificate from the CA. It returns the time when something is due next.
func (k *Keeper) renewLeaf(ctx context.Context, ca authority, now time.Time) (time.Time, error) {
	due, ok := ca.signed(k.certificate.own.Load().Leaf, now)
	if !ok {
		der, err := ca.sign(k.certificate.key, k.certificate.names, now)
		if err != nil {
			return due, err
		}
		if err := k.certificate.use(der); err != nil {
			return due, err
		}
		due, _ = ca.signed(k.certificate.own.Load().Leaf, now)
		logr.FromContextOrDiscard(ctx).V(1).Info("the endpoint serves a new certificate", "ca", ca.current.certificate.Subject.CommonName, "until", k.certificate.own.Load().Leaf.NotAfter)
	}
	if at := ca.due(); at.Before(due) {
		due = at
	}
	return due, nil
}

// keepCA ensures that the Secret contains the CA in its required state, and returns that CA.
func (k *Keeper) keepCA(ctx context.Context, now time.Time) (authority, error) {
	var seen watch.Latest[*corev1.Secret]
	k.changes.Locked(func() { seen = k.secret })
	if secret := seen.Object; secret != nil {
		ca, err := parseAuthority(k.certificate.names.common, secret.Data)
		if err == nil {
			k.known = ca
		} else {
			logr.FromContextOrDiscard(ctx).Info("restoring the damaged serving CA", "secret", secret.Name, "reason", err.Error())
		}
		wanted, changed, renewErr := k.renewed(now)
		if renewErr != nil || err == nil && !changed {
			return wanted, renewErr
		}
		return wanted, k.writeSecret(ctx, seen, wanted)
	}
	wanted, _, err := k.renewed(now)
	if err != nil {
		return authority{}, err
	}
	return wanted, k.writeSecret(ctx, seen, wanted)
}

// renewed returns the known CA in its required state, or a new one if none is known, and whether it has changed.
func (k *Keeper) renewed(now time.Time) (authority, bool, error) {
	if k.known.current == nil {
		ca, err := newAuthority(k.certificate.names.common, now)
		return ca, true, err
	}
	return k.known.renewed(now)
}

const descriptionAnnotation = "kubernetes.io/description"

// writeSecret creates the Secret, or replaces its data unless it has changed since seen.
func (k *Keeper) writeSecret(ctx context.Context, seen watch.Latest[*corev1.Secret], ca authority) error {
	data, err := ca.data()
	if err != nil {
		return err
	}
	if !k.repairs.Allowed(k.clock.Now()) {
		return fmt.Errorf("writing Secret %s/%s: %w", k.options.Namespace, k.options.Name, fence.ErrTooMany)
	}
	secrets := k.client.Secrets(k.options.Namespace)
	var written *corev1.Secret
	if seen.Object == nil {
		written, err = secrets.Create(ctx, &corev1.Secret{
			ObjectMeta: k.meta("The CA that signs the serving certificates of the " + k.options.Owner + ". It is recreated if deleted."),
			Type:       corev1.SecretTypeTLS, Data: data,
		}, metav1.CreateOptions{})
	} else {
		secret := seen.Object.DeepCopy()
		secret.Data = data
		written, err = secrets.Update(ctx, secret, metav1.UpdateOptions{})
	}
	if k.repairs.Count(err); err != nil {
		return fmt.Errorf("writing Secret %s/%s: %w", k.options.Namespace, k.options.Name, err)
	}
	logr.FromContextOrDiscard(ctx).Info("wrote the serving CA", "secret", written.Name, "ca", ca.current.certificate.Subject.CommonName, "next", ca.next != nil)
	k.known = ca
	k.changes.Locked(func() { k.secret.Wrote(seen, written) })
	return nil
}

// keepBundle ensures that the ConfigMap contains the CA's certificates.
func (k *Keeper) keepBundle(ctx context.Context, ca authority) error {
	var seen watch.Latest[*corev1.ConfigMap]
	k.changes.Locked(func() { seen = k.bundle })
	bundle := ca.bundle()
	if seen.Object != nil && seen.Object.Data[api.CABundleKey] == bundle {
		return nil
	}
	if !k.repairs.Allowed(k.clock.Now()) {
		return fmt.Errorf("writing ConfigMap %s/%s: %w", k.options.Namespace, k.options.Name, fence.ErrTooMany)
	}
	configMaps := k.client.ConfigMaps(k.options.Namespace)
	var written *corev1.ConfigMap
	var err error
	if seen.Object == nil {
		written, err = configMaps.Create(ctx, &corev1.ConfigMap{
			ObjectMeta: k.meta("The CA certificates with which clients verify the " + k.options.Owner + "."),
			Data:       map[string]string{api.CABundleKey: bundle},
		}, metav1.CreateOptions{})
	} else {
		configMap := seen.Object.DeepCopy()
		if configMap.Data == nil {
			configMap.Data = map[string]string{}
		}
		configMap.Data[api.CABundleKey] = bundle
		written, err = configMaps.Update(ctx, configMap, metav1.UpdateOptions{})
	}
	if k.repairs.Count(err); err != nil {
		return fmt.Errorf("writing ConfigMap %s/%s: %w", k.options.Namespace, k.options.Name, err)
	}
	k.changes.Locked(func() { k.bundle.Wrote(seen, written) })
	return nil
}

func (k *Keeper) meta(description string) metav1.ObjectMeta {
	return metav1.ObjectMeta{
		Namespace: k.options.Namespace, Name: k.options.Name,
		Annotations: map[string]string{descriptionAnnotation: description},
	}
}
