/*
 * base64url.h: unpadded base64url (RFC 4648 section 5) with exactly one spelling for each value.
 *
 * The server's own decoder accepts several spellings of the same bytes, which a signed token must not have.
 */
#ifndef IDEM_BASE64URL_H
#define IDEM_BASE64URL_H

/* The length of the text of so many bytes, and the most bytes that a text of so many characters can hold. */
#define BASE64URL_LENGTH(bytes) (((bytes) * 4 + 2) / 3)
#define BASE64URL_BYTES(characters) ((characters) * 3 / 4)

/* Write the text of some bytes to out, BASE64URL_LENGTH(length) characters, not terminated; returns their number. */
extern size_t base64url_encode(const uint8 *bytes, size_t length, char *out);

/*
 * Write the bytes that a text stands for to out, BASE64URL_BYTES(length) of them.  Returns false for a character
 * outside the alphabet (padding and white space included), an impossible length, and unused bits that are not
 * zero.
 */
extern bool base64url_decode(const char *text, size_t length, uint8 *out);

#endif							/* IDEM_BASE64URL_H */
