interface Begun {
  begin(): void;
  ended: Promise<void>;
}

/** The first test begins all; with --grep each begins by itself. No hook before each may change what another one uses. */
export function together(): (title: string, test: () => Promise<void>) => void {
  const all: Begun[] = [];
  return (title, test) => {
    const { promise, resolve, reject } = Promise.withResolvers<void>();
    let isBegun = false;
    const one: Begun = {
      begin() {
        if (isBegun) return;
        isBegun = true;
        test().then(resolve, reject);
        // Reported by the test itself, when its turn comes.
        promise.catch(() => {});
      },
      ended: promise,
    };
    all.push(one);
    it(title, () => {
      for (const each of process.env["TEST_GREP"] === undefined ? all : [one]) each.begin();
      return one.ended;
    });
  };
}
