// The page of flows: the diagram of each, in the language of the page.

Page.speak(Page.data.words);

function showFlows() {
  const panels = Page.data.flows[Page.language].map((flow) => {
    const { panel } = Diagram.make(flow);
    panel.style.setProperty("flex-basis", `min(100%, ${flow.width + 40}px)`);
    return panel;
  });
  document.getElementById("page").replaceChildren(
    pageHead(element("h1", { text: Page.data.title })),
    element("main", { class: "flows" }, ...panels),
  );
  Page.refresh();
}

Page.onChange(showFlows);
showFlows();
