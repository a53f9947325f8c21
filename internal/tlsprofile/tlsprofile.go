// Package tlsprofile takes a TLS profile of OpenShift's configuration, and returns the settings of a server.
package tlsprofile

import configv1 "github.com/openshift/api/config/v1"

// Settings returns the minimum version of a TLS profile and the IANA names of its cipher suites. A nil profile, and a custom profile without
// settings, stand for Intermediate. Cipher suites that Go does not implement are omitted, because a server configured with one does not start.
func Settings(profile *configv1.TLSSecurityProfile) (minVersion string, suites []string) {
	spec := configv1.TLSProfiles[configv1.TLSProfileIntermediateType]
	if profile != nil {
		if profile.Type == configv1.TLSProfileCustomType {
			if profile.Custom != nil {
				spec = &profile.Custom.TLSProfileSpec
			}
		} else if known := configv1.TLSProfiles[profile.Type]; known != nil {
			spec = known
		}
	}
	names := ianaNames()
	for _, name := range spec.Ciphers {
		if iana, ok := names[name]; ok {
			suites = append(suites, iana)
		}
	}
	return string(spec.MinTLSVersion), suites
}

// ianaNames maps OpenSSL's names of the cipher suites that Go implements to the names in the IANA registry "TLS Cipher Suites". Suites of
// TLS 1.3 have only one name.
func ianaNames() map[string]string {
	return map[string]string{
		"TLS_AES_128_GCM_SHA256":       "TLS_AES_128_GCM_SHA256",       // 0x1301
		"TLS_AES_256_GCM_SHA384":       "TLS_AES_256_GCM_SHA384",       // 0x1302
		"TLS_CHACHA20_POLY1305_SHA256": "TLS_CHACHA20_POLY1305_SHA256", // 0x1303

		"ECDHE-ECDSA-AES128-GCM-SHA256": "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256",       // 0xC02B
		"ECDHE-ECDSA-AES256-GCM-SHA384": "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384",       // 0xC02C
		"ECDHE-RSA-AES128-GCM-SHA256":   "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256",         // 0xC02F
		"ECDHE-RSA-AES256-GCM-SHA384":   "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384",         // 0xC030
		"ECDHE-RSA-CHACHA20-POLY1305":   "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256",   // 0xCCA8
		"ECDHE-ECDSA-CHACHA20-POLY1305": "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256", // 0xCCA9
		"ECDHE-ECDSA-AES128-SHA256":     "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA256",       // 0xC023
		"ECDHE-RSA-AES128-SHA256":       "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA256",         // 0xC027
		"AES128-GCM-SHA256":             "TLS_RSA_WITH_AES_128_GCM_SHA256",               // 0x009C
		"AES256-GCM-SHA384":             "TLS_RSA_WITH_AES_256_GCM_SHA384",               // 0x009D
		"AES128-SHA256":                 "TLS_RSA_WITH_AES_128_CBC_SHA256",               // 0x003C

		"ECDHE-ECDSA-AES128-SHA": "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA", // 0xC009
		"ECDHE-ECDSA-AES256-SHA": "TLS_ECDHE_ECDSA_WITH_AES_256_CBC_SHA", // 0xC00A
		"ECDHE-RSA-AES128-SHA":   "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA",   // 0xC013
		"ECDHE-RSA-AES256-SHA":   "TLS_ECDHE_RSA_WITH_AES_256_CBC_SHA",   // 0xC014
		"AES128-SHA":             "TLS_RSA_WITH_AES_128_CBC_SHA",         // 0x002F
		"AES256-SHA":             "TLS_RSA_WITH_AES_256_CBC_SHA",         // 0x0035
		"DES-CBC3-SHA":           "TLS_RSA_WITH_3DES_EDE_CBC_SHA",        // 0x000A
	}
}
