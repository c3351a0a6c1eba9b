// Colours as a browser reads them: of style sheets (CSS Color 4), and of attributes such as bgcolor.

/** Red, green and blue from 0 to 255, and how opaque it is, from 0 to 1. */
export type Color = readonly [red: number, green: number, blue: number, alpha: number];

export const BLACK: Color = [0, 0, 0, 1];
export const WHITE: Color = [255, 255, 255, 1];

/** The named colours of CSS, each with its value. */
const NAMES = new Map(
  `
aliceblue f0f8ff antiquewhite faebd7 aqua 00ffff aquamarine 7fffd4 azure f0ffff beige f5f5dc bisque ffe4c4 black 000000
blanchedalmond ffebcd blue 0000ff blueviolet 8a2be2 brown a52a2a burlywood deb887 cadetblue 5f9ea0 chartreuse 7fff00
chocolate d2691e coral ff7f50 cornflowerblue 6495ed cornsilk fff8dc crimson dc143c cyan 00ffff darkblue 00008b
darkcyan 008b8b darkgoldenrod b8860b darkgray a9a9a9 darkgreen 006400 darkgrey a9a9a9 darkkhaki bdb76b
darkmagenta 8b008b darkolivegreen 556b2f darkorange ff8c00 darkorchid 9932cc darkred 8b0000 darksalmon e9967a
darkseagreen 8fbc8f darkslateblue 483d8b darkslategray 2f4f4f darkslategrey 2f4f4f darkturquoise 00ced1
darkviolet 9400d3 deeppink ff1493 deepskyblue 00bfff dimgray 696969 dimgrey 696969 dodgerblue 1e90ff firebrick b22222
floralwhite fffaf0 forestgreen 228b22 fuchsia ff00ff gainsboro dcdcdc ghostwhite f8f8ff gold ffd700 goldenrod daa520
gray 808080 green 008000 greenyellow adff2f grey 808080 honeydew f0fff0 hotpink ff69b4 indianred cd5c5c indigo 4b0082
ivory fffff0 khaki f0e68c lavender e6e6fa lavenderblush fff0f5 lawngreen 7cfc00 lemonchiffon fffacd lightblue add8e6
lightcoral f08080 lightcyan e0ffff lightgoldenrodyellow fafad2 lightgray d3d3d3 lightgreen 90ee90 lightgrey d3d3d3
lightpink ffb6c1 lightsalmon ffa07a lightseagreen 20b2aa lightskyblue 87cefa lightslategray 778899 lightslategrey 778899
lightsteelblue b0c4de lightyellow ffffe0 lime 00ff00 limegreen 32cd32 linen faf0e6 magenta ff00ff maroon 800000
mediumaquamarine 66cdaa mediumblue 0000cd mediumorchid ba55d3 mediumpurple 9370db mediumseagreen 3cb371
mediumslateblue 7b68ee mediumspringgreen 00fa9a mediumturquoise 48d1cc mediumvioletred c71585 midnightblue 191970
mintcream f5fffa mistyrose ffe4e1 moccasin ffe4b5 navajowhite ffdead navy 000080 oldlace fdf5e6 olive 808000
olivedrab 6b8e23 orange ffa500 orangered ff4500 orchid da70d6 palegoldenrod eee8aa palegreen 98fb98 paleturquoise afeeee
palevioletred db7093 papayawhip ffefd5 peachpuff ffdab9 peru cd853f pink ffc0cb plum dda0dd powderblue b0e0e6
purple 800080 rebeccapurple 663399 red ff0000 rosybrown bc8f8f royalblue 4169e1 saddlebrown 8b4513 salmon fa8072
sandybrown f4a460 seagreen 2e8b57 seashell fff5ee sienna a0522d silver c0c0c0 skyblue 87ceeb slateblue 6a5acd
slategray 708090 slategrey 708090 snow fffafa springgreen 00ff7f steelblue 4682b4 tan d2b48c teal 008080 thistle d8bfd8
tomato ff6347 turquoise 40e0d0 violet ee82ee wheat f5deb3 white ffffff whitesmoke f5f5f5 yellow ffff00
yellowgreen 9acd32 canvas ffffff canvastext 000000 window ffffff windowtext 000000
`
    .trim()
    .split(/\s+/)
    .flatMap((word, i, words): [string, string][] => (i % 2 === 0 ? [[word, words[i + 1] ?? '']] : [])),
);

const FUNCTION = /^(rgba?|hsla?)\(([^()]{1,100})\)$/;
const NUMBER = /^([+-]?(?:\d+\.?\d*|\.\d+))(%|deg)?$/;

/** A colour of CSS, in lower case; undefined if it is none, or one that depends on its element (`currentcolor`). */
export function toColor(text: string): Color | undefined {
  if (text === 'transparent') return [0, 0, 0, 0];
  const named = NAMES.get(text);
  if (named !== undefined) return ofHex(named);
  if (/^#(?:[\da-f]{3,4}|[\da-f]{6}|[\da-f]{8})$/.test(text)) return ofHex(text.slice(1));
  const [, name = '', given = ''] = FUNCTION.exec(text) ?? [];
  const numbers = given.split(/[\s,/]+/).flatMap((part) => {
    const [, digits, unit] = NUMBER.exec(part) ?? [];
    return digits === undefined ? [] : [{ value: Number(digits), isPercent: unit === '%' }];
  });
  const [first, second, third, alpha] = numbers;
  if (!first || !second || !third) return undefined;
  const opacity = alpha ? between(alpha.value / (alpha.isPercent ? 100 : 1), 1) : 1;
  if (name.startsWith('hsl')) return [...ofHue(first.value, second.value / 100, third.value / 100), opacity];
  const [red, green, blue] = [first, second, third].map((one) =>
    between(one.isPercent ? one.value * 2.55 : one.value, 255),
  );
  return [red ?? 0, green ?? 0, blue ?? 0, opacity];
}

/** A colour of an attribute (HTML, "rules for parsing a legacy color value"): it accepts almost anything. */
export function toLegacyColor(attribute: string): Color | undefined {
  const text = attribute.trim().toLowerCase().slice(0, 128);
  if (text === '' || text === 'transparent') return undefined;
  if (NAMES.has(text) || /^#(?:[\da-f]{3}|[\da-f]{6})$/.test(text)) return toColor(text);
  const digits = text.replace(/^#/, '').replace(/[^\da-f]/g, '0');
  const size = Math.ceil(Math.max(digits.length, 1) / 3);
  const parts = [0, 1, 2].map((i) =>
    digits
      .slice(i * size, (i + 1) * size)
      .padEnd(size, '0')
      .slice(-8),
  );
  const zeros = Math.min(...parts.map((part) => /^0*/.exec(part)?.[0].length ?? 0), size - 2);
  const [red = 0, green = 0, blue = 0] = parts.map((part) =>
    Number.parseInt(part.slice(Math.max(0, zeros)).slice(0, 2), 16),
  );
  return [red, green, blue, 1];
}

/** A colour over another one, which is opaque. */
export function over([red, green, blue, alpha]: Color, [r, g, b]: Color): Color {
  const mix = (top: number, below: number) => top * alpha + below * (1 - alpha);
  return [mix(red, r), mix(green, g), mix(blue, b), 1];
}

/** How far two opaque colours are apart: the largest difference of their parts. */
export function distance([red, green, blue]: Color, [r, g, b]: Color): number {
  return Math.max(Math.abs(red - r), Math.abs(green - g), Math.abs(blue - b));
}

function ofHex(digits: string): Color {
  const wide = digits.length <= 4 ? digits.replace(/./g, '$&$&') : digits;
  const at = (i: number) => Number.parseInt(wide.slice(i, i + 2), 16);
  return [at(0), at(2), at(4), wide.length === 8 ? at(6) / 255 : 1];
}

function ofHue(hue: number, saturation: number, lightness: number): readonly [number, number, number] {
  const [s, l] = [between(saturation, 1), between(lightness, 1)];
  const part = (n: number) => {
    const k = (((n + hue / 30) % 12) + 12) % 12;
    return 255 * (l - s * Math.min(l, 1 - l) * Math.max(-1, Math.min(k - 3, 9 - k, 1)));
  };
  return [part(0), part(8), part(4)];
}

const between = (value: number, most: number): number => Math.max(0, Math.min(most, value));
