/** The parts that we use of a global that Node's types lack. */
declare namespace WebAssembly {
  class Module {
    constructor(bytes: Uint8Array);
  }
  class Memory {
    /** In pages of 64 KiB. */
    constructor(pages: { readonly initial: number; readonly maximum: number });
    readonly buffer: ArrayBuffer;
  }
  class Instance<Exports> {
    constructor(module: Module, imports: { readonly env: { readonly memory: Memory } });
    readonly exports: Exports;
  }
}
