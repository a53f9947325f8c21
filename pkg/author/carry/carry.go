// Package carry copies the OpenPGP signatures of a release to a mirror. It collects the signatures that a trust policy accepts. It writes
// them to a signature store, or as a ConfigMap to a file or a cluster.
package carry

import (
	"bytes"
	"context"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cluster-version/cvo/pkg/author/sign"
	"github.com/cluster-version/cvo/pkg/release"
	"github.com/cluster-version/cvo/pkg/verify"
	"github.com/cluster-version/cvo/pkg/verify/openpgp"
	"github.com/cluster-version/cvo/pkg/verify/policy"
	"github.com/cluster-version/cvo/pkg/verify/store"
)

// Collect returns the OpenPGP signatures that a keyring of the policy accepts, by signed digest. Without a policy, it returns none.
func Collect(ctx context.Context, trust policy.Policy, sources verify.Sources, digests []release.Digest) (map[release.Digest][][]byte, error) {
	stores := slices.Clone(sources.Local)
	for _, url := range trust.Stores {
		opened, err := store.Open(url, sources.Client)
		if err != nil {
			return nil, err
		}
		stores = append(stores, opened)
	}
	messages := map[release.Digest][][]byte{}
	for _, digest := range digests {
		for _, source := range stores {
			for s, err := range source.Signatures(ctx, digest) {
				if err == nil && isAccepted(ctx, trust, digest, s) && !containsMessage(messages[digest], s.Message) {
					messages[digest] = append(messages[digest], s.Message)
				}
			}
		}
	}
	return messages, ctx.Err()
}

func containsMessage(messages [][]byte, message []byte) bool {
	return slices.ContainsFunc(messages, func(m []byte) bool { return bytes.Equal(m, message) })
}

// isAccepted reports whether a keyring of the policy accepts a message as a signature of the digest.
func isAccepted(ctx context.Context, trust policy.Policy, digest release.Digest, s store.Signature) bool {
	signature := store.NewConfigMaps(func(context.Context) ([]store.ConfigMapData, error) {
		return []store.ConfigMapData{{BinaryData: map[string][]byte{store.ConfigMapKey(digest, 1): s.Message}}}, nil
	})
	for _, keyring := range trust.Keyrings {
		single := trust
		single.Keyrings, single.Stores = []openpgp.Keyring{keyring}, nil
		single.SigstoreKeys, single.Authorities, single.Thresholds = nil, nil, nil
		verifier, err := verify.New(single, verify.Sources{Local: []store.Store{signature}}, clock.RealClock{})
		if err != nil {
			continue
		}
		if _, err := verifier.Verify(ctx, release.Image{Digest: digest}); err == nil {
			return true
		}
	}
	return false
}

// Store adds the missing signatures to a store.
func Store(ctx context.Context, dir string, digest release.Digest, messages [][]byte) error {
	var existing [][]byte
	for s, err := range store.NewFolder(dir).Signatures(ctx, digest) {
		if err == nil {
			existing = append(existing, s.Message)
		}
	}
	for _, message := range messages {
		if containsMessage(existing, message) {
			continue
		}
		if _, err := sign.WriteSignature(dir, digest, message); err != nil {
			return err
		}
	}
	return nil
}

// ConfigMap returns the ConfigMap with missing signatures added; present may be nil.
func ConfigMap(present *corev1.ConfigMap, digest release.Digest, messages [][]byte) (*corev1.ConfigMap, error) {
	for _, message := range messages {
		if present != nil {
			var existing [][]byte
			for _, m := range present.BinaryData {
				existing = append(existing, m)
			}
			if containsMessage(existing, message) {
				continue
			}
		}
		next, err := sign.SignatureConfigMap(present, digest, message)
		if err != nil {
			return nil, err
		}
		present = next
	}
	return present, nil
}

// Apply adds the signatures to their ConfigMap in a cluster and returns the result, such as "created". With overwrite, it replaces an
// existing ConfigMap.
func Apply(ctx context.Context, cluster client.Client, digest release.Digest, messages [][]byte, overwrite bool) (string, error) {
	fresh, err := ConfigMap(nil, digest, messages)
	if err != nil {
		return "", err
	}
	err = cluster.Create(ctx, fresh.DeepCopy())
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
		} else if changed, err = ConfigMap(changed, digest, messages); err != nil {
			return "", err
		}
		// After a conflict with another writer, the loop reads the ConfigMap again.
		if err := cluster.Update(ctx, changed); !apierrors.IsConflict(err) {
			return "configured", err
		}
	}
}
