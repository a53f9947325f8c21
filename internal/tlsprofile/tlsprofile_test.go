package tlsprofile

import (
	"crypto/tls"
	"testing"

	configv1 "github.com/openshift/api/config/v1"
	"github.com/stretchr/testify/assert"
)

func TestSettingsFollowTheProfile(t *testing.T) {
	custom := &configv1.CustomTLSProfile{TLSProfileSpec: configv1.TLSProfileSpec{
		Ciphers: []string{"AES128-SHA", "DHE-RSA-AES128-GCM-SHA256"}, MinTLSVersion: configv1.VersionTLS11,
	}}
	type settings struct {
		minVersion string
		suites     []string
	}
	settingsOf := func(profile *configv1.TLSSecurityProfile) (s settings) {
		s.minVersion, s.suites = Settings(profile)
		return s
	}
	intermediate := settings{"VersionTLS12", []string{
		"TLS_AES_128_GCM_SHA256", "TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256",
		"TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256", "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256",
		"TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384", "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384",
		"TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256", "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256",
	}}
	for _, tt := range []struct {
		name    string
		profile *configv1.TLSSecurityProfile
		want    settings
	}{
		{"uses Intermediate without a profile", nil, intermediate},
		{"uses Intermediate without a type", &configv1.TLSSecurityProfile{}, intermediate},
		{"uses Intermediate for an unknown type", &configv1.TLSSecurityProfile{Type: "Future"}, intermediate},
		{"uses Intermediate for a custom profile without settings", &configv1.TLSSecurityProfile{Type: configv1.TLSProfileCustomType}, intermediate},
		{"reads Modern", &configv1.TLSSecurityProfile{Type: configv1.TLSProfileModernType}, settings{"VersionTLS13", intermediate.suites[:3]}},
		{"omits settings of a custom profile that Go lacks", &configv1.TLSSecurityProfile{Type: configv1.TLSProfileCustomType, Custom: custom}, settings{"VersionTLS11", []string{"TLS_RSA_WITH_AES_128_CBC_SHA"}}},
	} {
		t.Run("it "+tt.name, func(t *testing.T) { assert.Equal(t, tt.want, settingsOf(tt.profile)) })
	}
	old := settingsOf(&configv1.TLSSecurityProfile{Type: configv1.TLSProfileOldType})
	assert.Len(t, old.suites, len(configv1.TLSProfiles[configv1.TLSProfileOldType].Ciphers), "every cipher suite must have a name")
}

// TestIANANamesMatchGoNames checks the names against Go's, because components parse cipher suites by Go's names.
func TestIANANamesMatchGoNames(t *testing.T) {
	known := map[string]bool{}
	for _, suite := range append(tls.CipherSuites(), tls.InsecureCipherSuites()...) {
		known[suite.Name] = true
	}
	for _, name := range ianaNames() {
		assert.True(t, known[name], name)
	}
}
