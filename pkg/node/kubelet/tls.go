package kubelet

import (
	"cmp"
	"crypto/tls"
	"strings"

	configv1 "github.com/openshift/api/config/v1"
)

// setTLS adds the settings for a TLS profile. Without a profile, the kubelet's own settings apply.
func (c checker) setTLS(settings map[string]any, profile *configv1.TLSSecurityProfile) *Error {
	if profile == nil {
		return nil
	}
	for _, field := range []string{"tlsCipherSuites", "tlsMinVersion"} {
		if has(settings, field) {
			return c.errorf("spec.kubeletConfig."+field, "remove one of the two", "is the same setting as spec.tlsSecurityProfile")
		}
	}
	spec := configv1.TLSProfiles[cmp.Or(profile.Type, configv1.TLSProfileIntermediateType)]
	if profile.Type == configv1.TLSProfileCustomType {
		if profile.Custom == nil {
			return c.errorf("spec.tlsSecurityProfile.custom", "add it, or choose another type", "is missing")
		}
		spec = &profile.Custom.TLSProfileSpec
	}
	if spec == nil {
		return c.errorf("spec.tlsSecurityProfile.type", "use Old, Intermediate, Modern or Custom", "is %q, an unknown profile", profile.Type)
	}
	if spec.MinTLSVersion != "" {
		settings["tlsMinVersion"] = string(spec.MinTLSVersion)
	}
	known := cipherSuites()
	var suites []any
	for _, cipher := range spec.Ciphers {
		suite, ok := known[cipher]
		if !ok { // only a custom profile has unknown ones
			return c.errorf("spec.tlsSecurityProfile.custom.ciphers", "remove it", "contains %q, which the kubelet does not support", cipher)
		}
		suites = append(suites, suite)
	}
	if len(suites) > 0 {
		settings["tlsCipherSuites"] = suites
	}
	return nil
}

// cipherSuites maps OpenSSL's names of cipher suites, which profiles use, to the names of those that the kubelet accepts. The kubelet does not
// start with an unknown name. TLS 1.3 has the same names in both.
func cipherSuites() map[string]string {
	shorten := strings.NewReplacer("TLS_", "", "_WITH_", "-", "3DES_EDE_CBC", "DES-CBC3", "AES_", "AES", "_CBC", "", "POLY1305_SHA256", "POLY1305", "_", "-")
	known := map[string]string{}
	for _, suite := range append(tls.CipherSuites(), tls.InsecureCipherSuites()...) {
		if !strings.Contains(suite.Name, "_WITH_") {
			known[suite.Name] = suite.Name
			continue
		}
		known[strings.TrimPrefix(shorten.Replace(suite.Name), "RSA-")] = suite.Name
	}
	return known
}
