package openpgp

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/ProtonMail/go-crypto/openpgp/armor"
	"github.com/ProtonMail/go-crypto/openpgp/packet"
	legacypacket "golang.org/x/crypto/openpgp/packet" //nolint:staticcheck // the only reader of version 3 signature packets, which real release signatures use
)

const (
	// MaxSignatureSize is the maximum size of one stored signature in bytes; real ones have about 1 KiB.
	MaxSignatureSize = 50 << 10
	// maxMessageSize limits the size of a decompressed message. A claim has a few hundred bytes. Every signature requires hashing the whole
	// message.
	maxMessageSize = 128 << 10
	// maxSignatures is the maximum number of signatures in one message.
	maxSignatures = 16
	// maxPackets is the maximum number of packets in one message: signatures, one-pass announcements and ignored packets.
	maxPackets = 100
	// maxNesting is the maximum depth of compressed packets inside compressed packets.
	maxNesting = 2

	messageBlock = "PGP MESSAGE"
)

// Packet types (RFC 9580, section 5).
const (
	tagPublicKeyEncrypted = 1
	tagSignature          = 2
	tagSymmetricEncrypted = 3
	tagOnePassSignature   = 4
	tagPrivateKey         = 5
	tagPublicKey          = 6
	tagPrivateSubkey      = 7
	tagCompressed         = 8
	tagEncrypted          = 9
	tagMarker             = 10
	tagLiteral            = 11
	tagTrust              = 12
	tagUserID             = 13
	tagPublicSubkey       = 14
	tagUserAttribute      = 17
	tagEncryptedProtected = 18
	tagEncryptedAEAD      = 20
	tagPadding            = 21
	// firstIgnorableTag is the lowest tag that readers may ignore if they do not know it (RFC 9580, section 4.3).
	firstIgnorableTag = 40
)

// Message is an OpenPGP signed message: the signed body and its unverified signatures.
type Message struct {
	// raw is the message as stored.
	raw        []byte
	body       []byte
	signatures []signature

	hasBody           bool
	onePass, trailing int
	unpacked, packets int
}

// ReadMessage parses a signed message (RFC 9580, section 10.3), which may be armored or compressed. It checks only the format. It rejects
// detached and cleartext signatures, encrypted messages and unsigned messages.
func ReadMessage(data []byte) (*Message, error) {
	if len(data) > MaxSignatureSize {
		return nil, fmt.Errorf("larger than %d bytes", MaxSignatureSize)
	}
	raw := data
	if trimmed := bytes.TrimSpace(data); bytes.HasPrefix(trimmed, []byte(armorStart)) {
		block, err := armor.Decode(bytes.NewReader(trimmed))
		if err != nil {
			return nil, fmt.Errorf("decoding armor: %w", err)
		}
		if block.Type != messageBlock {
			return nil, fmt.Errorf("a %s, expected a %s (a signed message, not a detached or cleartext signature)", block.Type, messageBlock)
		}
		if data, err = io.ReadAll(block.Body); err != nil {
			return nil, fmt.Errorf("decoding armor: %w", err)
		}
	}
	m := &Message{raw: raw}
	if err := m.read(data, 0); err != nil {
		return nil, fmt.Errorf("reading OpenPGP message: %w", err)
	}
	switch {
	case !m.hasBody && len(m.signatures) > 0:
		return nil, errors.New("a detached signature: the signed claim must be part of the message")
	case !m.hasBody:
		return nil, errors.New("not an OpenPGP signed message: it contains no literal data")
	case len(m.signatures) == 0:
		return nil, errors.New("the OpenPGP message is not signed")
	case m.onePass != m.trailing:
		return nil, fmt.Errorf("the OpenPGP message announces %d signatures but has %d", m.onePass, m.trailing)
	}
	return m, nil
}

// SignedAt returns the latest signing time in the message, unverified, or zero if no signature has a time.
func (m *Message) SignedAt() time.Time {
	var latest time.Time
	for _, s := range m.signatures {
		if s.err == nil && s.created().After(latest) {
			latest = s.created()
		}
	}
	return latest
}

func (m *Message) read(data []byte, depth int) error {
	packets := packet.NewOpaqueReader(bytes.NewReader(data))
	for {
		p, err := packets.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if m.packets++; m.packets > maxPackets {
			return fmt.Errorf("more than %d packets", maxPackets)
		}
		if err := m.packet(p, depth); err != nil {
			return err
		}
	}
}

func (m *Message) packet(p *packet.OpaquePacket, depth int) error {
	switch p.Tag {
	case tagCompressed:
		return m.compressed(p, depth)
	case tagOnePassSignature:
		if m.hasBody {
			return errors.New("a one-pass signature packet follows the data")
		}
		m.onePass++
	case tagSignature:
		if len(m.signatures) == maxSignatures {
			return fmt.Errorf("more than %d signatures", maxSignatures)
		}
		m.signatures = append(m.signatures, readSignature(p))
		if m.hasBody {
			m.trailing++
		}
	case tagLiteral:
		return m.literal(p)
	case tagPublicKeyEncrypted, tagSymmetricEncrypted, tagEncrypted, tagEncryptedProtected, tagEncryptedAEAD:
		return errors.New("it is encrypted, expected a signed message")
	case tagMarker, tagPadding:
	default:
		if p.Tag < firstIgnorableTag {
			return fmt.Errorf("unexpected packet of type %d", p.Tag)
		}
	}
	return nil
}

func (m *Message) compressed(p *packet.OpaquePacket, depth int) error {
	if depth == maxNesting {
		return errors.New("compressed more than twice")
	}
	parsed, err := p.Parse()
	if err != nil {
		return fmt.Errorf("decompressing: %w", err)
	}
	c, ok := parsed.(*packet.Compressed)
	if !ok {
		return fmt.Errorf("decompressing: unexpected %T", parsed)
	}
	left := maxMessageSize - m.unpacked
	inner, err := io.ReadAll(io.LimitReader(c.Body, int64(left)+1))
	if err != nil {
		return fmt.Errorf("decompressing: %w", err)
	}
	if len(inner) > left {
		return fmt.Errorf("it decompresses to more than %d bytes", maxMessageSize)
	}
	m.unpacked += len(inner)
	return m.read(inner, depth+1)
}

func (m *Message) literal(p *packet.OpaquePacket) error {
	if m.hasBody {
		return errors.New("more than one literal data packet")
	}
	parsed, err := p.Parse()
	if err != nil {
		return fmt.Errorf("reading literal data: %w", err)
	}
	l, ok := parsed.(*packet.LiteralData)
	if !ok {
		return fmt.Errorf("reading literal data: unexpected %T", parsed)
	}
	m.body, err = io.ReadAll(l.Body)
	m.hasBody = true
	return err
}

// readSignature returns an unreadable signature together with its error, because another signature of the message may be valid.
func readSignature(p *packet.OpaquePacket) signature {
	if len(p.Contents) == 0 {
		return signature{err: errors.New("empty signature packet")}
	}
	if v := p.Contents[0]; v == 2 || v == 3 {
		parsed, err := (&legacypacket.OpaquePacket{Tag: tagSignature, Contents: p.Contents}).Parse()
		if s, ok := parsed.(*legacypacket.SignatureV3); err == nil && ok {
			return signature{legacy: s}
		}
		return signature{err: fmt.Errorf("reading version %d signature: %w", v, orUnexpected(err))}
	}
	parsed, err := p.Parse()
	s, ok := parsed.(*packet.Signature)
	switch {
	case err != nil || !ok:
		return signature{err: fmt.Errorf("reading version %d signature: %w", p.Contents[0], orUnexpected(err))}
	case s.Version == 5:
		return signature{err: errors.New("version 5 signatures are not supported")}
	}
	return signature{current: s}
}

func orUnexpected(err error) error {
	if err == nil {
		return errors.New("not a signature packet")
	}
	return err
}
