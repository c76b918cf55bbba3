import type { RequestHandler } from "express";

/** An encoded letter, digit, hyphen, full stop, underscore or tilde: RFC 3986, 2.3, calls them unreserved. */
const ENCODED_UNRESERVED = /%(?:3\d|[46][1-9a-f]|[57][\da]|2[de]|5f|7e)/gi;

/**
 * A path in which unreserved characters are written as they are: it names the same resource (RFC 3986, 6.2.2.2). No other
 * encoded character is decoded, so a parameter is still decoded once, and an encoded slash stays inside its segment.
 */
export const withPlainCharacters = (path: string): string =>
  path.replaceAll(ENCODED_UNRESERVED, (encoded) => String.fromCharCode(Number.parseInt(encoded.slice(1), 16)));

/** Lets a path be matched however its unreserved characters are encoded. */
export const matchPlainCharacters: RequestHandler = (req, _res, next) => {
  if (req.url.includes("%")) {
    const [path = "", ...query] = req.url.split("?");
    req.url = [withPlainCharacters(path), ...query].join("?");
  }
  next();
};
