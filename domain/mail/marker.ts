/**
 * Characters that stand for parts of a template while its HTML is read. No character reference yields them: HTML's table
 * of numeric references replaces these three, and no named one has them. So text without them has none after its
 * references were decoded.
 */
export const MARKERS = ["\u0086", "\u0087", "\u0088"] as const;

export const ANY_MARKER = /[\u0086-\u0088]/g;

export const hasMarker = (text: string): boolean => text.search(ANY_MARKER) >= 0;

/** Replaces markers that an author wrote by another control character, which is as invisible. */
export const withoutMarkers = (text: string): string => text.replace(ANY_MARKER, "\u0089");
