package operator

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/utils/clock"

	"github.com/cluster-version/cvo/pkg/api"
)

// servingKeeper keeps the operator's CA in a Secret that all replicas share and its certificates in a ConfigMap for
// clients, and has this replica serve with a certificate that the CA has signed. Every replica does all of it, whether or
// not it leads: of writes at the same time the API server takes one, and the others see it. What somebody deletes or spoils
// comes back, with the same CA.
type servingKeeper struct {
	clock       clock.Clock
	client      corev1client.CoreV1Interface
	namespace   string
	certificate *certificate

	// known is the CA that was seen or made last; its zero value is none.
	known servingCA
	// repairs bounds how often is written, for somebody may keep deleting.
	repairs bucket
	// failures counts those since the last success.
	failures int

	noted
	secret lastKnown[*corev1.Secret]
	bundle lastKnown[*corev1.ConfigMap]
}

// Writes that are for free, and the time after which there is another one.
const (
	repairsAtOnce    = 8
	repairsEvery     = time.Minute
	servingRetryMost = 10 * time.Minute
	// lookForLead is how often a replica that does not lead finds out whether it has to write by now. It asks nobody.
	lookForLead = 5 * time.Second
)

func newServingKeeper(clk clock.Clock, client corev1client.CoreV1Interface, namespace string, certificate *certificate) *servingKeeper {
	return &servingKeeper{
		clock: clk, client: client, namespace: namespace, certificate: certificate,
		repairs: bucket{left: repairsAtOnce, at: clk.Now()},
		noted:   newNoted(),
	}
}

// bucket holds the writes that are free by now.
type bucket struct {
	left float64
	at   time.Time
}

// fill puts in what time has brought, and reports whether there is one to take.
func (b *bucket) fill(now time.Time) bool {
	b.left, b.at = min(b.left+now.Sub(b.at).Seconds()/repairsEvery.Seconds(), repairsAtOnce), now
	return b.left >= 1
}

// take notes a write that came to err. What was not sent counts for nothing.
func (b *bucket) take(err error) {
	if !errors.Is(err, errFenced) {
		b.left--
	}
}

// NeedLeaderElection implements manager.LeaderElectionRunnable: every replica serves.
func (*servingKeeper) NeedLeaderElection() bool { return false }

// Start implements manager.Runnable.
func (k *servingKeeper) Start(ctx context.Context) error {
	watchAll(ctx, func() { k.keepOn(ctx) },
		newSingle(k.client.Secrets(k.namespace), &corev1.Secret{}, api.ServingCAName, each(func(secret *corev1.Secret) {
			k.note(func() { k.secret.tell(secret) })
		})),
		newSingle(k.client.ConfigMaps(k.namespace), &corev1.ConfigMap{}, api.ServingCAName, each(func(bundle *corev1.ConfigMap) {
			k.note(func() { k.bundle.tell(bundle) })
		})),
	)
	return nil
}

// keepOn does what is due, again and again, until ctx ends.
func (k *servingKeeper) keepOn(ctx context.Context) {
	for {
		timer := k.clock.NewTimer(k.step(ctx))
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-k.changed:
		case <-timer.C():
		}
		timer.Stop()
	}
}

// errTooMany: more was written than a CA needs.
var errTooMany = errors.New("somebody keeps changing it; it is put right once a minute")

// step does what is due and returns after how long something is due again.
func (k *servingKeeper) step(ctx context.Context) time.Duration {
	now := k.clock.Now()
	ca, err := k.keepCA(ctx, now)
	due := now.Add(servingRetryMost)
	if err == nil {
		due, err = k.renewLeaf(ctx, ca, now)
	}
	if err == nil {
		err = k.keepBundle(ctx, ca)
	}
	switch {
	case err == nil:
		k.failures = 0
		return max(due.Sub(now), time.Second)
	case apierrors.IsConflict(err), apierrors.IsAlreadyExists(err):
		// Another replica was first. The watch tells what it wrote, and if not, then the next step does.
		return time.Second
	case errors.Is(err, errFenced):
		return lookForLead // nothing was sent
	case ctx.Err() != nil:
		return servingRetryMost
	}
	if k.failures == 0 {
		logr.FromContextOrDiscard(ctx).Error(err, "serving CA not kept; serving goes on with what there is")
	}
	k.failures++
	return min(time.Second<<min(k.failures, 10), servingRetryMost)
}

// renewLeaf has the endpoint serve with a certificate of the CA, and returns when something is due again.
func (k *servingKeeper) renewLeaf(ctx context.Context, ca servingCA, now time.Time) (time.Time, error) {
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
		logr.FromContextOrDiscard(ctx).V(1).Info("endpoint serves another certificate", "ca", ca.current.certificate.Subject.CommonName, "until", k.certificate.own.Load().Leaf.NotAfter)
	}
	if at := ca.due(); at.Before(due) {
		due = at
	}
	return due, nil
}

// keepCA returns the CA after it has made sure that the Secret holds it as it should be now.
func (k *servingKeeper) keepCA(ctx context.Context, now time.Time) (servingCA, error) {
	k.mu.Lock()
	seen := k.secret
	k.mu.Unlock()
	if secret := seen.object; secret != nil {
		ca, err := parseServingCA(secret.Data)
		if err == nil {
			k.known = ca
		} else {
			logr.FromContextOrDiscard(ctx).Info("serving CA was spoilt and is put right", "secret", secret.Name, "reason", err.Error())
		}
		wanted, changed, renewErr := k.renewed(now)
		if renewErr != nil || err == nil && !changed {
			return wanted, renewErr
		}
		return wanted, k.writeSecret(ctx, seen, wanted)
	}
	wanted, _, err := k.renewed(now)
	if err != nil {
		return servingCA{}, err
	}
	return wanted, k.writeSecret(ctx, seen, wanted)
}

// renewed is what is known as it should be now; if nothing is known, a new CA.
func (k *servingKeeper) renewed(now time.Time) (servingCA, bool, error) {
	if k.known.current == nil {
		ca, err := newServingCA(now)
		return ca, true, err
	}
	return k.known.renewed(now)
}

const servingCADescription = "kubernetes.io/description"

// writeSecret creates the Secret, or replaces what it holds if nobody has changed it since it was seen.
func (k *servingKeeper) writeSecret(ctx context.Context, seen lastKnown[*corev1.Secret], ca servingCA) error {
	data, err := ca.data()
	if err != nil {
		return err
	}
	if !k.repairs.fill(k.clock.Now()) {
		return fmt.Errorf("writing Secret %s/%s: %w", k.namespace, api.ServingCAName, errTooMany)
	}
	secrets := k.client.Secrets(k.namespace)
	var written *corev1.Secret
	if seen.object == nil {
		written, err = secrets.Create(ctx, &corev1.Secret{
			ObjectMeta: k.meta("The authority that signs the serving certificates of the version operator. It is made again if deleted."),
			Type:       corev1.SecretTypeTLS, Data: data,
		}, metav1.CreateOptions{})
	} else {
		secret := seen.object.DeepCopy()
		secret.Data = data
		written, err = secrets.Update(ctx, secret, metav1.UpdateOptions{})
	}
	if k.repairs.take(err); err != nil {
		return fmt.Errorf("writing Secret %s/%s: %w", k.namespace, api.ServingCAName, err)
	}
	logr.FromContextOrDiscard(ctx).Info("serving CA written", "secret", written.Name, "ca", ca.current.certificate.Subject.CommonName, "next", ca.next != nil)
	k.known = ca
	k.mu.Lock()
	defer k.mu.Unlock()
	k.secret.wrote(seen, written)
	return nil
}

// keepBundle makes sure that the ConfigMap has the certificates of the CA.
func (k *servingKeeper) keepBundle(ctx context.Context, ca servingCA) error {
	k.mu.Lock()
	seen := k.bundle
	k.mu.Unlock()
	bundle := ca.bundle()
	if seen.object != nil && seen.object.Data[api.CABundleKey] == bundle {
		return nil
	}
	if !k.repairs.fill(k.clock.Now()) {
		return fmt.Errorf("writing ConfigMap %s/%s: %w", k.namespace, api.ServingCAName, errTooMany)
	}
	configMaps := k.client.ConfigMaps(k.namespace)
	var written *corev1.ConfigMap
	var err error
	if seen.object == nil {
		written, err = configMaps.Create(ctx, &corev1.ConfigMap{
			ObjectMeta: k.meta("The certificates by which clients know the version operator."),
			Data:       map[string]string{api.CABundleKey: bundle},
		}, metav1.CreateOptions{})
	} else {
		configMap := seen.object.DeepCopy()
		if configMap.Data == nil {
			configMap.Data = map[string]string{}
		}
		configMap.Data[api.CABundleKey] = bundle
		written, err = configMaps.Update(ctx, configMap, metav1.UpdateOptions{})
	}
	if k.repairs.take(err); err != nil {
		return fmt.Errorf("writing ConfigMap %s/%s: %w", k.namespace, api.ServingCAName, err)
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.bundle.wrote(seen, written)
	return nil
}

func (k *servingKeeper) meta(description string) metav1.ObjectMeta {
	return metav1.ObjectMeta{
		Namespace: k.namespace, Name: api.ServingCAName,
		Annotations: map[string]string{servingCADescription: description},
	}
}
