package mirror

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cluster-version/cvo/internal/atomicfile"
	"github.com/cluster-version/cvo/pkg/author/carry"
	"github.com/cluster-version/cvo/pkg/cli/command"
	"github.com/cluster-version/cvo/pkg/cli/verifying"
	"github.com/cluster-version/cvo/pkg/oci/mirror"
	"github.com/cluster-version/cvo/pkg/release"
	"github.com/cluster-version/cvo/pkg/verify"
	"github.com/cluster-version/cvo/pkg/verify/policy"
	"github.com/cluster-version/cvo/pkg/verify/store"
)

// Subfolders of the destination folder for OpenPGP signatures: a signature store, and ConfigMaps.
const (
	mirrorSignatures = "signatures"
	mirrorConfig     = "config"
)

// mirrorTrust holds the trust policy and the signatures of a release.
type mirrorTrust struct {
	policy   policy.Policy
	sources  verify.Sources
	verifier *verify.Verifier
	evidence []release.Evidence // none if the verification was skipped
	// skipped is the error that --insecure-skip-verification overrode; nil if none.
	skipped error
	// unsigned is set if the user chose an image that the signatures do not cover.
	unsigned bool
}

// verify decides whether the release may be copied.
func (m *mirroring) verify(ctx context.Context) error {
	err := m.checkSignature(ctx)
	var unread *verifying.UnreadError
	switch {
	case err == nil:
		verifying.PrintSigners(m.streams, string(m.image.Digest), m.trust.evidence)
		return nil
	case errors.As(err, &unread) || ctx.Err() != nil:
		return err
	case m.skipVerify:
		m.trust.skipped = err
		m.streams.Warnf("copying without a trusted signature because of --insecure-skip-verification: %v", err)
		return nil
	case verifying.IsInaccessible(err):
		return fmt.Errorf("nothing was copied: %w", verifying.Refusal(m.image, err))
	case m.options.trust != "":
		return &command.RefusedError{Err: fmt.Errorf("nothing was copied: %w", err)}
	}
	return &command.RefusedError{Err: fmt.Errorf("nothing was copied: %w: add --trust FILE, or skip the verification with --insecure-skip-verification", err)}
}

func (m *mirroring) checkSignature(ctx context.Context) error {
	policy, err := m.policy(ctx)
	if err != nil {
		return err
	}
	m.trust.policy, m.trust.sources = policy, verifying.Sources(m.images)
	if dir := m.sourceDir(); dir != "" {
		if dir, err = filepath.Abs(dir); err != nil {
			return err
		}
		m.trust.sources.Local = []store.Store{store.NewFolder(filepath.Join(dir, mirrorSignatures))}
	}
	if m.trust.verifier, err = verify.New(policy, m.trust.sources, clock.RealClock{}); err != nil {
		return err
	}
	m.trust.evidence, err = m.trust.verifier.Verify(ctx, m.image)
	return err
}

// policy returns the policy of --trust, or else the policy in the release itself.
func (m *mirroring) policy(ctx context.Context) (policy.Policy, error) {
	if m.options.trust != "" {
		trusted, err := verifying.ReadTrust(m.options.trust)
		if err != nil {
			return policy.Policy{}, &verifying.UnreadError{Err: err}
		}
		return *trusted, nil
	}
	shipped, err := verifying.ShippedKeys(ctx, m.images, m.image)
	if _, ok := errors.AsType[*verifying.UnreadError](err); ok {
		return policy.Policy{}, err
	}
	if err != nil {
		return policy.Policy{}, fmt.Errorf("the release contains no keys: %w", err)
	}
	m.streams.Warnf("verifying the release with its own keys: set the accepted keys with --trust")
	return shipped, nil
}

// coversOnlyIndex reports whether the signatures cover an index, but not the image in it that would be copied. A failed search is an error.
func (t *mirrorTrust) coversOnlyIndex(ctx context.Context, r *mirror.Release) (bool, error) {
	if len(t.evidence) == 0 || r.Digest == r.Resolved {
		return false, nil
	}
	_, err := t.verifier.Verify(ctx, r.Image)
	if err == nil || ctx.Err() != nil {
		return false, err
	}
	if refused, ok := errors.AsType[*verify.UnverifiedError](err); ok && refused.IsUnsigned() {
		return true, nil
	}
	if verifying.IsInaccessible(err) {
		return false, fmt.Errorf("nothing was copied: %w", verifying.Refusal(r.Image, err))
	}
	return false, &command.RefusedError{Err: fmt.Errorf(
		"nothing was copied: cannot determine whether image %s is signed like its index: %w: copy all architectures with --keep-manifest-list", r.Digest, err)}
}

// verifyCopy verifies a copy that may lack sigstore signatures, as a cluster without access to the source does.
func (m *mirroring) verifyCopy(ctx context.Context) error {
	isSigstore := func(e release.Evidence) bool { return e.Method == verify.MethodSigstore }
	if m.trust.unsigned || !slices.ContainsFunc(m.trust.evidence, isSigstore) {
		return nil
	}
	if _, err := m.trust.verifier.Verify(ctx, release.Image{Pullspec: m.result.Image, Digest: m.release.Digest}); err != nil {
		return fmt.Errorf("%s was copied, but its signatures were not copied, and clusters will reject it: run the command again: %w", m.result.Image, err)
	}
	return nil
}

// writeSignatures writes the OpenPGP signatures to the destinations that the flags name.
func (m *mirroring) writeSignatures(ctx context.Context) error {
	if m.toMirror {
		return nil
	}
	messages, err := carry.Collect(ctx, m.trust.policy, m.trust.sources, m.release.Digests())
	if err != nil {
		return fmt.Errorf("collecting signatures: %w", err)
	}
	configDir := m.signatureDir
	if configDir == "" && m.toDir != "" {
		configDir = filepath.Join(m.toDir, mirrorConfig)
	}
	wanted := m.signatureDir != "" || m.applySignature
	if wanted && len(messages) == 0 {
		return fmt.Errorf("cannot write a signature ConfigMap: the policy accepts no OpenPGP signature of %s", m.release.Resolved)
	}
	for _, digest := range m.release.Digests() {
		messages := messages[digest]
		if len(messages) == 0 {
			continue
		}
		if m.toDir != "" && !m.dryRun {
			if err := carry.Store(ctx, filepath.Join(m.toDir, mirrorSignatures), digest, messages); err != nil {
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

func (m *mirroring) writeConfigMap(dir string, digest release.Digest, messages [][]byte) error {
	cm, err := carry.ConfigMap(nil, digest, messages)
	if err != nil {
		return err
	}
	data, err := json.MarshalIndent(cm, "", "  ")
	if err != nil {
		return err
	}
	file := filepath.Join(dir, "signature-sha256-"+digest.Hex()[:16]+".json")
	if m.dryRun {
		m.streams.Infof("Write configmap signature file %s", file)
		return nil
	}
	if err := writeWhole(file, append(data, '\n'), 0o640); err != nil {
		return fmt.Errorf("writing the signature ConfigMap: %w", err)
	}
	m.result.Signatures = append(m.result.Signatures, file)
	m.printLine("Configmap signature file %s created", file)
	return nil
}

// writeWhole writes a file atomically and creates its folder if it is missing.
func writeWhole(file string, data []byte, mode os.FileMode) error {
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return err
	}
	return atomicfile.Write(file, mode, atomicfile.Content(data))
}

func (m *mirroring) applyConfigMap(ctx context.Context, digest release.Digest, messages [][]byte) error {
	cfg, err := m.cluster.Config()
	if err != nil {
		return err
	}
	cluster, err := client.New(cfg, client.Options{})
	if err != nil {
		return fmt.Errorf("connecting to the cluster: %w", err)
	}
	fresh, err := carry.ConfigMap(nil, digest, messages)
	if err != nil {
		return err
	}
	if m.dryRun {
		m.streams.Infof("Create or configure configmap/%s", fresh.Name)
		return nil
	}
	done, err := carry.Apply(ctx, cluster, digest, messages, m.overwrite)
	if err != nil {
		return fmt.Errorf("writing the signature ConfigMap into the cluster: %w", err)
	}
	m.result.Signatures = append(m.result.Signatures, "configmap/"+fresh.Name)
	m.printLine("configmap/%s %s", fresh.Name, done)
	return nil
}
