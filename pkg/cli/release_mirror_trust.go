package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cluster-version/cvo/pkg/assemble"
	"github.com/cluster-version/cvo/pkg/atomicfile"
	"github.com/cluster-version/cvo/pkg/mirror"
	"github.com/cluster-version/cvo/pkg/payload"
	"github.com/cluster-version/cvo/pkg/release"
	"github.com/cluster-version/cvo/pkg/verify"
)

// Folders, within one that a release is mirrored to, for its OpenPGP signatures: a signature store, and ConfigMaps.
const (
	mirrorSignatures = "signatures"
	mirrorConfig     = "config"
)

// mirrorTrust is what is known of the signatures of a release.
type mirrorTrust struct {
	policy   verify.Policy
	sources  verify.Sources
	verifier *verify.Verifier
	evidence []release.Evidence
	// skipped is why the release would have been refused, if that was overridden.
	skipped error
	// messages are the OpenPGP signatures that go along, by the digest that they sign.
	messages map[release.Digest][][]byte
}

// verify decides whether the release is to be copied at all.
func (m *mirroring) verify(ctx context.Context) error {
	err := m.checkSignature(ctx)
	var unread *releaseUnreadError
	switch {
	case err == nil:
		tellSigners(m.streams, string(m.image.Digest), m.trust.evidence)
		return nil
	case errors.As(err, &unread) || ctx.Err() != nil:
		return err
	case m.skipVerify:
		m.trust.skipped = err
		fmt.Fprintf(m.streams.Err, "warning: --insecure-skip-verification: copied although nobody trusted is known to have signed it: %v\n", err)
		return nil
	case m.releaseMirrorOptions.trust != "":
		return &RefusedError{Err: fmt.Errorf("nothing was copied: %w", err)}
	}
	return &RefusedError{Err: fmt.Errorf("nothing was copied: name whom you trust with --trust, or copy it as it is with --insecure-skip-verification: %w", err)}
}

// releaseUnreadError means that there is no answer to whether a release is signed.
type releaseUnreadError struct{ error }

func (e *releaseUnreadError) Unwrap() error { return e.error }

func (m *mirroring) checkSignature(ctx context.Context) error {
	policy, err := m.policy(ctx)
	if err != nil {
		return err
	}
	m.trust.policy = policy
	m.trust.sources = verify.Sources{Client: m.images.Access().WebClient(), Attachments: m.images}
	if dir := m.sourceDir(); dir != "" {
		if dir, err = filepath.Abs(dir); err != nil {
			return err
		}
		m.trust.sources.Local = []verify.Store{verify.NewFolder(filepath.Join(dir, mirrorSignatures))}
	}
	if m.trust.verifier, err = verify.New(policy, m.trust.sources, clock.RealClock{}); err != nil {
		return err
	}
	m.trust.evidence, err = m.trust.verifier.Verify(ctx, m.image)
	return err
}

// policy is that of --trust, or else what the release says of itself.
func (m *mirroring) policy(ctx context.Context) (verify.Policy, error) {
	if m.releaseMirrorOptions.trust != "" {
		policy, err := readTrust(m.releaseMirrorOptions.trust)
		if err != nil {
			return verify.Policy{}, &releaseUnreadError{err}
		}
		return *policy, nil
	}
	files, err := m.images.Manifests(ctx, m.image)
	if err != nil {
		return verify.Policy{}, &releaseUnreadError{err}
	}
	p, err := payload.Load(files, m.image.ByDigest(), payload.Options{})
	if err != nil {
		return verify.Policy{}, &releaseUnreadError{err}
	}
	policy, err := verify.FromManifests(p.Manifests)
	if err != nil {
		return verify.Policy{}, fmt.Errorf("the release brings no keys of its own: %w", err)
	}
	fmt.Fprintln(m.streams.Err, "warning: the release is checked against the keys that it brings itself: say with --trust whose signatures you accept")
	return policy, nil
}

// checkPlatform warns of a signature that does not go along: that of an index from which one image is taken.
func (t *mirrorTrust) checkPlatform(ctx context.Context, streams Streams, r *mirror.Release) {
	if t.verifier == nil || t.skipped != nil || r.Digest == r.Resolved {
		return
	}
	if _, err := t.verifier.Verify(ctx, r.Image); err != nil {
		fmt.Fprintf(streams.Err, "warning: what is signed is %s, which is for several architectures, and not the image %s in it: "+
			"clusters that verify will refuse the mirrored image: use --keep-manifest-list\n", r.Resolved, r.Digest)
	}
}

// collect gathers the OpenPGP signatures that satisfy a keyring of the policy; without a policy, none is known.
func (t *mirrorTrust) collect(ctx context.Context, digests []release.Digest) error {
	stores := t.sources.Local
	for _, url := range t.policy.Stores {
		store, err := verify.OpenStore(url, t.sources.Client)
		if err != nil {
			return err
		}
		stores = append(stores, store)
	}
	t.messages = map[release.Digest][][]byte{}
	for _, digest := range digests {
		for _, store := range stores {
			for s, err := range store.Signatures(ctx, digest) {
				if err == nil && t.accepts(ctx, digest, s) && !contains(t.messages[digest], s.Message) {
					t.messages[digest] = append(t.messages[digest], s.Message)
				}
			}
		}
	}
	return ctx.Err()
}

func contains(messages [][]byte, message []byte) bool {
	for _, m := range messages {
		if bytes.Equal(m, message) {
			return true
		}
	}
	return false
}

// accepts reports whether any keyring takes a message as a signature of the digest, so that nothing else is carried along.
func (t *mirrorTrust) accepts(ctx context.Context, digest release.Digest, s verify.Signature) bool {
	store := verify.NewConfigMaps(func(context.Context) ([]verify.ConfigMapData, error) {
		return []verify.ConfigMapData{{BinaryData: map[string][]byte{verify.ConfigMapKey(digest, 1): s.Message}}}, nil
	})
	for _, k := range t.policy.Keyrings {
		policy := t.policy
		policy.Keyrings, policy.Stores = []verify.Keyring{k}, nil
		policy.SigstoreKeys, policy.Authorities, policy.Thresholds = nil, nil, nil
		verifier, err := verify.New(policy, verify.Sources{Local: []verify.Store{store}}, clock.RealClock{})
		if err != nil {
			continue
		}
		if _, err := verifier.Verify(ctx, release.Image{Digest: digest}); err == nil {
			return true
		}
	}
	return false
}

// writeSignatures puts the OpenPGP signatures where they were asked for.
func (m *mirroring) writeSignatures(ctx context.Context) error {
	if m.toMirror {
		return nil
	}
	if err := m.trust.collect(ctx, m.release.Digests()); err != nil {
		return fmt.Errorf("collecting signatures: %w", err)
	}
	configDir := m.signatureDir
	if configDir == "" && m.toDir != "" {
		configDir = filepath.Join(m.toDir, mirrorConfig)
	}
	wanted := m.signatureDir != "" || m.applySignature
	if wanted && len(m.trust.messages) == 0 {
		return fmt.Errorf("there is no OpenPGP signature of %s that the policy accepts, so no signature ConfigMap can be written", m.release.Resolved)
	}
	for _, digest := range m.release.Digests() {
		messages := m.trust.messages[digest]
		if len(messages) == 0 {
			continue
		}
		if m.toDir != "" && !m.dryRun {
			if err := storeSignatures(ctx, filepath.Join(m.toDir, mirrorSignatures), digest, messages); err != nil {
				return err
			}
		}
		if configDir != "" {
			if err := m.writeConfigMap(configDir, digest, messages); err != nil {
				return err
			}
		}
		if m.applySignature {
			if err := m.applyConfigMap(ctx, digest, messages); err != nil {
				return err
			}
		}
	}
	return nil
}

// storeSignatures adds to a store what it does not have.
func storeSignatures(ctx context.Context, dir string, digest release.Digest, messages [][]byte) error {
	var there [][]byte
	for s, err := range verify.NewFolder(dir).Signatures(ctx, digest) {
		if err == nil {
			there = append(there, s.Message)
		}
	}
	for _, message := range messages {
		if contains(there, message) {
			continue
		}
		if _, err := assemble.WriteSignature(dir, digest, message); err != nil {
			return err
		}
	}
	return nil
}

// signatureConfigMap adds to a ConfigMap, which may be nil, the signatures that it does not have.
func signatureConfigMap(present *corev1.ConfigMap, digest release.Digest, messages [][]byte) (*corev1.ConfigMap, error) {
	for _, message := range messages {
		if present != nil {
			var there [][]byte
			for _, m := range present.BinaryData {
				there = append(there, m)
			}
			if contains(there, message) {
				continue
			}
		}
		next, err := assemble.SignatureConfigMap(present, digest, message)
		if err != nil {
			return nil, err
		}
		present = next
	}
	return present, nil
}

func (m *mirroring) writeConfigMap(dir string, digest release.Digest, messages [][]byte) error {
	cm, err := signatureConfigMap(nil, digest, messages)
	if err != nil {
		return err
	}
	data, err := json.MarshalIndent(cm, "", "  ")
	if err != nil {
		return err
	}
	file := filepath.Join(dir, "signature-sha256-"+digest.Hex()[:16]+".json")
	if m.dryRun {
		fmt.Fprintf(m.streams.Err, "info: Write configmap signature file %s\n", file)
		return nil
	}
	if err := writeWhole(file, append(data, '\n'), 0o640); err != nil {
		return fmt.Errorf("writing the signature ConfigMap: %w", err)
	}
	m.result.Signatures = append(m.result.Signatures, file)
	m.say("Configmap signature file %s created", file)
	return nil
}

// writeWhole gives a file its content in one step; its folder is made if need be.
func writeWhole(file string, data []byte, mode os.FileMode) error {
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return err
	}
	return atomicfile.Write(file, mode, atomicfile.Content(data))
}

func (m *mirroring) applyConfigMap(ctx context.Context, digest release.Digest, messages [][]byte) error {
	cfg, err := m.cluster.config()
	if err != nil {
		return err
	}
	cluster, err := client.New(cfg, client.Options{})
	if err != nil {
		return fmt.Errorf("reaching the cluster: %w", err)
	}
	fresh, err := signatureConfigMap(nil, digest, messages)
	if err != nil {
		return err
	}
	if m.dryRun {
		fmt.Fprintf(m.streams.Err, "info: Create or configure configmap/%s\n", fresh.Name)
		return nil
	}
	done, err := applyConfigMap(ctx, cluster, fresh, m.overwrite, func(present *corev1.ConfigMap) (*corev1.ConfigMap, error) {
		return signatureConfigMap(present, digest, messages)
	})
	if err != nil {
		return fmt.Errorf("writing the signature ConfigMap into the cluster: %w", err)
	}
	m.result.Signatures = append(m.result.Signatures, "configmap/"+fresh.Name)
	m.say("configmap/%s %s", fresh.Name, done)
	return nil
}

// applyConfigMap creates a ConfigMap, or adds to the one that is there, unless that is to be replaced.
func applyConfigMap(ctx context.Context, cluster client.Client, fresh *corev1.ConfigMap, overwrite bool, add func(*corev1.ConfigMap) (*corev1.ConfigMap, error)) (string, error) {
	err := cluster.Create(ctx, fresh.DeepCopy())
	if !apierrors.IsAlreadyExists(err) {
		return "created", err
	}
	for {
		var present corev1.ConfigMap
		if err := cluster.Get(ctx, client.ObjectKeyFromObject(fresh), &present); err != nil {
			return "", err
		}
		changed := present.DeepCopy()
		changed.TypeMeta = fresh.TypeMeta
		if overwrite {
			changed.Labels, changed.BinaryData = fresh.Labels, fresh.BinaryData
		} else if changed, err = add(changed); err != nil {
			return "", err
		}
		// Somebody who changed it meanwhile is looked at again.
		if err := cluster.Update(ctx, changed); !apierrors.IsConflict(err) {
			return "configured", err
		}
	}
}
