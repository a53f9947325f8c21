package object

import (
	"errors"
	"maps"
	"net/url"
	"slices"
	"strings"

	"github.com/ProtonMail/go-crypto/openpgp"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/author/lint/source"
	"github.com/cluster-version/cvo/pkg/verify/policy"
)

// checkThresholds checks a ConfigMap with a trust policy for the release's clusters. It finds members of a threshold that share a signer.
// It ignores an unreadable policy, which the commands that install it report.
func checkThresholds(o *source.Object) {
	data, _ := o.Object.Object["data"].(map[string]any)
	if _, ok := data[policy.DocumentKey]; !ok || !o.Is("", "ConfigMap") {
		return
	}
	texts := map[string]string{}
	for key, value := range data {
		texts[key], _ = value.(string)
	}
	trust, err := policy.ParseData(o.Object.GetName(), texts, nil)
	if err != nil {
		return
	}
	for _, warning := range trust.Warnings() {
		o.Find("trust-shared-signer", source.Path{"data", policy.DocumentKey}, "%s", warning)
	}
}

// Prefixes of the keys in the ConfigMap with a release's signing keys and signature stores.
const (
	keyPrefix   = "verifier-public-key-"
	storePrefix = "store-"
)

// checkVerification checks the ConfigMap with signing keys and signature stores.
func checkVerification(o *source.Object) {
	if _, ok := o.Object.GetAnnotations()[api.VerificationAnnotation]; !ok {
		return
	}
	if !o.Is("", "ConfigMap") {
		o.Find("verification", annotationPath(api.VerificationAnnotation), "the annotation is only valid on a ConfigMap")
		return
	}
	data, _ := o.Object.Object["data"].(map[string]any)
	binary, _ := o.Object.Object["binaryData"].(map[string]any)
	keyrings, stores := len(binary), 0
	for _, key := range slices.Sorted(maps.Keys(data)) {
		value, _ := data[key].(string)
		where := source.Path{"data", key}
		switch {
		case strings.HasPrefix(key, keyPrefix):
			keyrings++
			if err := checkKeyring(value); err != nil {
				o.Find("verification", where, "%s: not an OpenPGP keyring: %v", key, err)
			}
		case strings.HasPrefix(key, storePrefix):
			stores++
			u, err := url.Parse(strings.TrimSpace(value))
			if err != nil || !slices.Contains([]string{"https", "http", "file"}, u.Scheme) {
				o.Find("verification", where, "%s: %q is not the address of a store: it must start with https://, http:// or file://", key, value)
			}
		default:
			o.Find("verification", where, "%s: this key has no effect: keys must start with %s or %s", key, keyPrefix, storePrefix)
		}
	}
	if keyrings == 0 {
		o.Find("verification", nil, "has no key %s<name>, so it cannot verify any release", keyPrefix)
	}
	if stores == 0 {
		o.Find("verification", nil, "has no key %s<name>, so it has no signature store", storePrefix)
	}
}

func checkKeyring(text string) error {
	keys, err := openpgp.ReadArmoredKeyRing(strings.NewReader(text))
	if err != nil {
		keys, err = openpgp.ReadKeyRing(strings.NewReader(text))
	}
	if err == nil && len(keys) == 0 {
		return errors.New("it contains no key")
	}
	return err
}
