// The part of juice that fetches nothing comes without types: what mail/compose/inline-css.ts uses of it, and no more.

declare module 'juice/client' {
  interface Juice {
    (
      html: string,
      options: {
        readonly removeStyleTags: boolean;
        readonly resolveCSSVariables: boolean;
        readonly applyWidthAttributes: boolean;
        readonly applyHeightAttributes: boolean;
        readonly applyAttributesTableElements: boolean;
      },
    ): string;
    /** By name: what is set aside while HTML is parsed. */
    readonly codeBlocks: Record<string, unknown>;
  }
  const juice: Juice;
  export default juice;
}
