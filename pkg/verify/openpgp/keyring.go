package openpgp

import (
	"bytes"
	"cmp"
	"crypto/dsa" //nolint:staticcheck // old keyrings contain such keys; the minimum length also applies to them
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/ProtonMail/go-crypto/openpgp"
	"github.com/ProtonMail/go-crypto/openpgp/armor"
	"github.com/ProtonMail/go-crypto/openpgp/packet"
)

const (
	// maxKeyringSize and maxKeyringPackets limit the size of a keyring, because parsing checks every self-signature.
	maxKeyringSize    = 1 << 20
	maxKeyringPackets = 4096
	// maxKeyBits limits the numbers in a key, because computing with larger numbers takes minutes. maxSubgroupBits is the limit for DSA
	// subgroups.
	maxKeyBits      = 16384
	maxSubgroupBits = 512
)

// Keyring is a set of OpenPGP public keys. One signature with any of the keys satisfies it. Create it with NewKeyring.
type Keyring struct {
	Name     string
	entities openpgp.EntityList
	// revoked maps the fingerprint of each revoked key to the reason. A revocation applies to every copy of the key in the keyring, because
	// a copy from before the revocation must not make the key valid again.
	revoked map[string]string
	// skipped lists the unusable keys with reasons.
	skipped []string
}

// Skipped returns the unusable keys of the keyring in order, with reasons. A keyring needs only one usable key.
func (k Keyring) Skipped() []string { return slices.Clone(k.skipped) }

// NewKeyring parses one or more OpenPGP public keys, binary or armored (with several blocks and text around them). It rejects private keys,
// because no one should distribute a private key as a root of trust. It fails if no key is usable.
//
// An administrator has chosen to trust the keyring, so its self-signatures may use SHA-1, as vendor keys from before 2014 do. Release
// signatures may not; see Rules.
func NewKeyring(name string, data []byte) (Keyring, error) {
	k := Keyring{Name: name, revoked: map[string]string{}}
	if err := k.read(data); err != nil {
		return Keyring{}, fmt.Errorf("reading OpenPGP keyring %q: %w", name, err)
	}
	return k, nil
}

func (k *Keyring) read(data []byte) error {
	if len(data) > maxKeyringSize {
		return fmt.Errorf("larger than %d bytes", maxKeyringSize)
	}
	blocks := [][]byte{data}
	if IsArmored(data) {
		var err error
		if blocks, err = dearmor(data); err != nil {
			return err
		}
	}
	for _, b := range blocks {
		keys, err := splitKeys(b)
		if err != nil {
			return err
		}
		for _, packets := range keys {
			k.add(packets)
		}
	}
	switch {
	case len(k.entities) > 0:
		return nil
	case len(k.skipped) > 0:
		return fmt.Errorf("it contains no usable public key: %s", strings.Join(k.skipped, "; "))
	}
	return errors.New("it contains no public key")
}

// add adds one key with its identities and subkeys, or records why it is unusable.
func (k *Keyring) add(packets []*packet.OpaquePacket) {
	primary, err := readKeyPacket(packets[0])
	if err != nil {
		k.skipped = append(k.skipped, fmt.Sprintf("a key: %v", err))
		return
	}
	e, err := readEntity(packets)
	if err != nil {
		k.skipped = append(k.skipped, fmt.Sprintf("key %016X: %v", primary.KeyId, err))
		k.revokeBySkipped(primary, packets)
		return
	}
	k.entities = append(k.entities, e)
	for i := range e.Subkeys {
		if sub := &e.Subkeys[i]; len(sub.Revocations) > 0 {
			k.revoke(sub.PublicKey, revocationReason(sub.Revocations))
		}
	}
	why := revocationReason(e.Revocations)
	if id := mainIdentity(e); why == "" && id != nil && len(id.Revocations) > 0 {
		// The library prefers valid identities, so if this one is revoked, all are.
		why = "all its user IDs are revoked: " + revocationReason(id.Revocations)
	}
	if why != "" {
		k.revoke(e.PrimaryKey, why)
	}
}

// revokeBySkipped applies the revocations in an unusable copy of a key, because another copy may be usable. Key servers remove user IDs from
// keys, and the OpenPGP library rejects a key without them. An unreadable revocation revokes the primary key.
func (k *Keyring) revokeBySkipped(primary *packet.PublicKey, packets []*packet.OpaquePacket) {
	var subkey *packet.PublicKey
	for _, p := range packets {
		if p.Tag == tagPublicSubkey {
			subkey, _ = readKeyPacket(p)
			continue
		}
		r, err := readRevocation(p)
		switch {
		case err != nil:
			k.revoke(primary, err.Error())
		case r == nil:
		case r.SigType == packet.SigTypeKeyRevocation && primary.VerifyRevocationSignature(r) == nil:
			k.revoke(primary, reasonText(r))
		case r.SigType == packet.SigTypeSubkeyRevocation && subkey != nil && primary.VerifySubkeyRevocationSignature(r, subkey) == nil:
			k.revoke(subkey, reasonText(r))
		}
	}
}

func (k *Keyring) revoke(key *packet.PublicKey, why string) {
	if id := fingerprint(key); k.revoked[id] == "" {
		k.revoked[id] = why
	}
}

// Fingerprints returns the fingerprints of all primary keys and subkeys, in upper-case hex.
func (k Keyring) Fingerprints() []string {
	var out []string
	for _, key := range k.keys() {
		out = append(out, fingerprint(key.PublicKey))
	}
	return out
}

// Validate rejects a keyring if the rules allow none of its keys to sign.
func (k Keyring) Validate(rules Rules) error {
	if len(k.entities) == 0 {
		return errors.New("it contains no key: create it with NewKeyring")
	}
	var failures []string
	for _, key := range k.keys() {
		if !key.PublicKey.PubKeyAlgo.CanSign() {
			continue
		}
		err := k.usable(key, rules)
		if err == nil {
			return nil
		}
		failures = append(failures, err.Error())
	}
	return fmt.Errorf("no key in it can sign releases: %s", strings.Join(append(failures, k.skipped...), "; "))
}

// usable returns an error if a key may not sign. It does not check expiry.
func (k Keyring) usable(key openpgp.Key, rules Rules) error {
	// A revoked primary key revokes its subkeys, even if only another copy of the primary key is revoked.
	for _, p := range []*packet.PublicKey{key.PublicKey, key.Entity.PrimaryKey} {
		if why, ok := k.revoked[fingerprint(p)]; ok {
			return fmt.Errorf("key %016X is revoked (%s)", p.KeyId, why)
		}
	}
	if !maySign(key) {
		return fmt.Errorf("key %016X is not meant for signing", key.PublicKey.KeyId)
	}
	if err := rules.CheckKey(key.PublicKey); err != nil {
		return fmt.Errorf("key %016X is too weak: %w", key.PublicKey.KeyId, err)
	}
	return nil
}

// keys returns all primary keys and subkeys.
func (k Keyring) keys() []openpgp.Key {
	var out []openpgp.Key
	for _, e := range k.entities {
		out = append(out, openpgp.Key{Entity: e, PublicKey: e.PrimaryKey, SelfSignature: selfSignature(e), Revocations: e.Revocations})
		for _, sub := range e.Subkeys {
			out = append(out, openpgp.Key{Entity: e, PublicKey: sub.PublicKey, SelfSignature: sub.Sig, Revocations: sub.Revocations})
		}
	}
	return out
}

func fingerprint(k *packet.PublicKey) string {
	return strings.ToUpper(hex.EncodeToString(k.Fingerprint))
}

// splitKeys returns the packets of each key. The OpenPGP library would assign the packets of an unreadable key to the preceding key and
// lose both.
func splitKeys(data []byte) ([][]*packet.OpaquePacket, error) {
	var keys [][]*packet.OpaquePacket
	packets := packet.NewOpaqueReader(bytes.NewReader(data))
	for n := 1; ; n++ {
		p, err := packets.Next()
		if errors.Is(err, io.EOF) {
			return keys, nil
		}
		if err != nil {
			return nil, err
		}
		if n > maxKeyringPackets {
			return nil, fmt.Errorf("more than %d packets: export only the signing keys, without signatures by other keys", maxKeyringPackets)
		}
		switch p.Tag {
		case tagPublicKey:
			keys = append(keys, []*packet.OpaquePacket{p})
		case tagPublicSubkey, tagUserID, tagUserAttribute, tagSignature:
			if len(keys) == 0 {
				return nil, fmt.Errorf("it begins with a packet of type %d, not with a public key", p.Tag)
			}
			keys[len(keys)-1] = append(keys[len(keys)-1], p)
		case tagPrivateKey, tagPrivateSubkey:
			return nil, errPrivateKey
		case tagMarker, tagPadding, tagTrust:
		default:
			if p.Tag < firstIgnorableTag {
				return nil, fmt.Errorf("unexpected packet of type %d in a keyring", p.Tag)
			}
		}
	}
}

func readEntity(packets []*packet.OpaquePacket) (*openpgp.Entity, error) {
	var out bytes.Buffer
	for _, p := range packets {
		switch p.Tag {
		case tagPublicSubkey:
			// The parser skips an unknown kind of key, so the key's binding signature would belong to no key.
			if _, err := readKeyPacket(p); errors.Is(err, errKeyTooLarge) {
				return nil, err
			}
		default:
			if _, err := readRevocation(p); err != nil {
				return nil, err
			}
		}
		if err := p.Serialize(&out); err != nil {
			return nil, err
		}
	}
	return openpgp.ReadEntity(packet.NewReader(&out))
}

var (
	errKeyTooLarge = fmt.Errorf("its numbers are larger than %d bits", maxKeyBits)
	errPrivateKey  = errors.New("it contains a private key: export only the public key")
)

func readKeyPacket(p *packet.OpaquePacket) (*packet.PublicKey, error) {
	parsed, err := (&packet.OpaquePacket{Tag: p.Tag, Contents: p.Contents}).Parse()
	if err != nil {
		return nil, err
	}
	key, ok := parsed.(*packet.PublicKey)
	if !ok {
		return nil, errors.New("not a public key")
	}
	if bits, err := key.BitLength(); err == nil && bits > maxKeyBits {
		return nil, errKeyTooLarge
	}
	if d, ok := key.PublicKey.(*dsa.PublicKey); ok && d.Q.BitLen() > maxSubgroupBits {
		return nil, errKeyTooLarge
	}
	return key, nil
}

// readRevocation returns the revocation of a key or subkey in a packet, nil if the packet is something else. It fails for an unreadable
// revocation, because the OpenPGP library would skip it and treat the key as valid.
func readRevocation(p *packet.OpaquePacket) (*packet.Signature, error) {
	kind, ok := signatureType(p.Contents)
	if p.Tag != tagSignature || !ok || kind != packet.SigTypeKeyRevocation && kind != packet.SigTypeSubkeyRevocation {
		return nil, nil
	}
	parsed, err := (&packet.OpaquePacket{Tag: p.Tag, Contents: p.Contents}).Parse()
	if err != nil {
		return nil, fmt.Errorf("it has a revocation that cannot be read: %w", err)
	}
	revocation, _ := parsed.(*packet.Signature) // the only type with this tag
	return revocation, nil
}

// signatureType reads the type of a signature packet of any version.
func signatureType(contents []byte) (packet.SignatureType, bool) {
	at := 1
	if len(contents) > 0 && contents[0] <= 3 {
		at = 2 // The length of the hashed data comes first.
	}
	if len(contents) <= at {
		return 0, false
	}
	return packet.SignatureType(contents[at]), true
}

// revocationReason returns the reason for a revocation, or "" if there is none. Every revocation is final, whatever its reason and date,
// because a thief of the key can write any date into a signature.
func revocationReason(revocations []*packet.Signature) string {
	if len(revocations) == 0 {
		return ""
	}
	reasons := make([]string, len(revocations))
	for i, r := range revocations {
		reasons[i] = reasonText(r)
	}
	slices.Sort(reasons)
	return strings.Join(slices.Compact(reasons), ", ")
}

func reasonText(r *packet.Signature) string {
	text := "no reason given"
	if r.RevocationReason != nil {
		switch *r.RevocationReason {
		case packet.KeySuperseded:
			text = "superseded"
		case packet.KeyCompromised:
			text = "compromised"
		case packet.KeyRetired:
			text = "retired"
		case packet.UserIDNotValid:
			text = "user ID no longer valid"
		default:
		}
	}
	if r.RevocationReasonText != "" {
		text += fmt.Sprintf(": %q", r.RevocationReasonText)
	}
	return text
}

// mainIdentity returns the identity that represents a key: it prefers identities that are not revoked, then those marked as primary, then
// the latest. The library's own choice among equal identities varies from call to call.
func mainIdentity(e *openpgp.Entity) *openpgp.Identity {
	var all []*openpgp.Identity
	for _, id := range e.Identities {
		if id.SelfSignature != nil || len(id.Revocations) > 0 {
			all = append(all, id)
		}
	}
	if len(all) == 0 {
		return nil
	}
	return slices.MinFunc(all, func(a, b *openpgp.Identity) int {
		return cmp.Or(
			trueLast(len(a.Revocations) > 0, len(b.Revocations) > 0),
			trueLast(!primaryID(a), !primaryID(b)),
			latestFirst(a, b),
			cmp.Compare(a.Name, b.Name))
	})
}

func trueLast(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return 1
	}
	return -1
}

func primaryID(id *openpgp.Identity) bool {
	return id.SelfSignature != nil && id.SelfSignature.IsPrimaryId != nil && *id.SelfSignature.IsPrimaryId
}

func latestFirst(a, b *openpgp.Identity) int {
	if a.SelfSignature == nil || b.SelfSignature == nil {
		return trueLast(a.SelfSignature == nil, b.SelfSignature == nil)
	}
	return b.SelfSignature.CreationTime.Compare(a.SelfSignature.CreationTime)
}

// selfSignature returns the signature with the properties of a primary key, which is a separate signature since version 6.
func selfSignature(e *openpgp.Entity) *packet.Signature {
	if e.PrimaryKey.Version >= 6 {
		return e.SelfSignature
	}
	if id := mainIdentity(e); id != nil {
		return id.SelfSignature
	}
	return nil
}

const (
	armorStart      = "-----BEGIN PGP "
	publicKeyBlock  = "PGP PUBLIC KEY BLOCK"
	privateKeyBlock = "PGP PRIVATE KEY BLOCK"
)

// IsArmored reports whether data contains an armored OpenPGP block.
func IsArmored(data []byte) bool { return bytes.Contains(data, []byte(armorStart)) }

// dearmor returns the contents of every armored key block in data.
func dearmor(data []byte) ([][]byte, error) {
	var out [][]byte
	for {
		i := bytes.Index(data, []byte(armorStart))
		if i < 0 {
			return out, nil
		}
		data = data[i:]
		block, err := armor.Decode(bytes.NewReader(data))
		if err != nil {
			return nil, fmt.Errorf("decoding armor: %w", err)
		}
		switch block.Type {
		case publicKeyBlock:
		case privateKeyBlock:
			return nil, errPrivateKey
		default:
			return nil, fmt.Errorf("it contains a %s, expected a %s", block.Type, publicKeyBlock)
		}
		body, err := io.ReadAll(block.Body)
		if err != nil {
			return nil, fmt.Errorf("decoding armor: %w", err)
		}
		out = append(out, body)
		data = data[len(armorStart):]
	}
}
